#include "llama_harness.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <stdexcept>

namespace baton::model {

LlamaHarness::LlamaHarness(const std::string& path, const LlamaOptions& options,
                           uint32_t arena_tokens) {
  auto file = ModelFile::Open(path);
  if (!file.ok()) throw std::runtime_error(file.status().ToString());
  file_ = *std::move(file);
  auto model = LlamaModel::Load(*file_, options);
  if (!model.ok()) throw std::runtime_error(model.status().ToString());
  model_ = *std::move(model);

  const kernels::KvLayout layout = model_->kv_layout();
  const uint32_t blocks = (arena_tokens + layout.block_tokens - 1) / layout.block_tokens;
  arena_ = kernels::Buffer(layout.block_bytes() * blocks);
  kv_ = {.layout = layout, .block_count = blocks, .base = arena_.data()};
  Clear();
}

void LlamaHarness::Clear() {
  free_.resize(kv_.block_count);
  for (uint32_t i = 0; i < kv_.block_count; ++i) free_[i] = i;
  std::shuffle(free_.begin(), free_.end(), std::mt19937(kv_.block_count));
}

LlamaHarness::Sequence LlamaHarness::NewSequence(uint32_t tokens) {
  Sequence sequence;
  const uint32_t count = (tokens + kv_.layout.block_tokens - 1) / kv_.layout.block_tokens;
  if (count > free_.size()) throw std::runtime_error("the harness's arena is full");
  sequence.blocks.assign(free_.end() - count, free_.end());
  free_.resize(free_.size() - count);
  return sequence;
}

std::vector<float> LlamaHarness::Run(const std::vector<Chunk>& chunks) {
  std::vector<uint32_t> tokens;
  std::vector<ForwardSequence> sequences;
  uint64_t logit_rows = 0;
  for (const Chunk& chunk : chunks) {
    tokens.insert(tokens.end(), chunk.tokens.begin(), chunk.tokens.end());
    sequences.push_back({.blocks = chunk.sequence->blocks,
                         .start_position = chunk.sequence->length,
                         .token_count = static_cast<uint32_t>(chunk.tokens.size()),
                         .logit_rows = chunk.logit_rows});
    logit_rows += chunk.logit_rows;
  }
  std::vector<float> logits(logit_rows * vocabulary());
  model_->Forward({.tokens = tokens, .sequences = sequences}, kv_, nullptr, absl::MakeSpan(logits));
  for (const Chunk& chunk : chunks) {
    chunk.sequence->length += static_cast<uint32_t>(chunk.tokens.size());
  }
  return logits;
}

std::vector<float> LlamaHarness::Feed(Sequence& sequence, absl::Span<const uint32_t> tokens,
                                      uint32_t chunk) {
  std::vector<float> all;
  all.reserve(tokens.size() * vocabulary());
  while (!tokens.empty()) {
    const absl::Span<const uint32_t> now = tokens.subspan(0, std::min<size_t>(chunk, tokens.size()));
    const std::vector<float> logits =
        Run({{&sequence, now, static_cast<uint32_t>(now.size())}});
    all.insert(all.end(), logits.begin(), logits.end());
    tokens.remove_prefix(now.size());
  }
  return all;
}

std::vector<double> LogSoftmax(absl::Span<const float> logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - top);
  const double log_sum = top + std::log(sum);
  std::vector<double> result(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) result[i] = logits[i] - log_sum;
  return result;
}

uint32_t ArgMax(absl::Span<const float> logits) {
  return static_cast<uint32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

double KlDivergence(absl::Span<const float> expected, absl::Span<const float> got) {
  const std::vector<double> p = LogSoftmax(expected), q = LogSoftmax(got);
  double kl = 0;
  for (size_t i = 0; i < p.size(); ++i) kl += std::exp(p[i]) * (p[i] - q[i]);
  return kl;
}

}  // namespace baton::model
