// A loaded Llama with an arena of its own, driven as the runner drives it, but by hand.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "kernels/buffer.h"
#include "model/llama/llama_model.h"
#include "model/weights/model_file.h"

namespace baton::model {

class LlamaHarness {
 public:
  // Fails the test (throws) when the model cannot be loaded.
  LlamaHarness(const std::string& path, const LlamaOptions& options, uint32_t arena_tokens);

  LlamaModel& model() { return *model_; }
  const ModelFile& file() const { return *file_; }
  uint32_t vocabulary() const { return model_->info().vocabulary_size; }

  // Blocks of a new sequence for up to `tokens` tokens; they lie scattered in the arena.
  struct Sequence {
    std::vector<uint32_t> blocks;
    uint32_t length = 0;  // Positions that stand in the arena.
  };
  Sequence NewSequence(uint32_t tokens);
  void Clear();  // All sequences are gone; the arena keeps what was written.

  struct Chunk {
    Sequence* sequence;
    absl::Span<const uint32_t> tokens;
    uint32_t logit_rows;
  };
  // One Forward(); returns [sum of logit_rows, vocabulary].
  std::vector<float> Run(const std::vector<Chunk>& chunks);

  // Tokens as chunks of at most `chunk`, with logits of every row.
  std::vector<float> Feed(Sequence& sequence, absl::Span<const uint32_t> tokens, uint32_t chunk);

 private:
  std::unique_ptr<ModelFile> file_;
  std::unique_ptr<LlamaModel> model_;
  kernels::Buffer arena_;
  kernels::PagedKvView kv_;
  std::vector<uint32_t> free_;
};

// Stable, in double.
std::vector<double> LogSoftmax(absl::Span<const float> logits);
uint32_t ArgMax(absl::Span<const float> logits);
// KL(expected || got) of the two softmaxes.
double KlDivergence(absl::Span<const float> expected, absl::Span<const float> got);

}  // namespace baton::model
