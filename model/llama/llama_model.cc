#include "model/llama/llama_model.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "kernels/kernel_context.h"
#include "kernels/op_table.h"
#include "model/llama/llama_weights.h"
#include "model/llama/rope_table.h"

namespace baton::model {
namespace {

using kernels::Activations;
using kernels::Buffer;
using kernels::CpuLevel;
using kernels::Epilogue;
using kernels::KvLayout;
using kernels::KvType;
using kernels::PackedMatrix;
using kernels::PagedKvView;
using kernels::SequenceRows;
using kernels::TensorType;
using kernels::TensorView;

constexpr uint32_t kBatchRowsMax = 1 << 14;

const char* KvTypeName(KvType type) {
  switch (type) {
    case KvType::kF32: return "f32";
    case KvType::kF16: return "f16";
    case KvType::kBf16: return "bf16";
  }
  return "";
}

uint32_t CoresOfThisProcess() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0) return 1;
  return static_cast<uint32_t>(std::max(1, CPU_COUNT(&cores)));
}

bool AllMatricesF32(const LlamaWeights& weights) {
  const auto f32 = [](const PackedMatrix& matrix) {
    return std::all_of(matrix.parts().begin(), matrix.parts().end(),
                       [](const auto& part) { return part.type == TensorType::kF32; });
  };
  return f32(weights.head) &&
         std::all_of(weights.layers.begin(), weights.layers.end(), [&](const LlamaLayer& layer) {
           return f32(layer.qkv) && f32(layer.attention_output) && f32(layer.gate_up) &&
                  f32(layer.down);
         });
}

ModelInfo InfoOf(const ModelFile& file, const LlamaWeights& weights) {
  const LlamaConfig& config = file.config();
  return {.name = file.name(),
          .architecture = config.architecture,
          .digest = file.digest(),
          .vocabulary_size = config.vocabulary_size,
          .context_tokens = config.rope.scaling == RopeScaling::kDynamic
                                ? std::min(config.context_tokens, config.rope.original_context_tokens)
                                : config.context_tokens,
          .layers = config.layers,
          .kv_heads = config.kv_heads,
          .head_dim = config.head_dim,
          .f32_weights = AllMatricesF32(weights)};
}

// Rows of the batch in hand, and the memory they pass through.
struct Workspace {
  Workspace() = default;
  Workspace(const LlamaConfig& config, uint64_t rows)
      : hidden(rows * config.hidden * sizeof(float)),
        inner(rows * std::max(QkvColumns(config), uint64_t{config.feed_forward}) * sizeof(float)),
        attended(rows * config.heads * config.head_dim * sizeof(float)),
        operand(static_cast<uint32_t>(rows),
                std::max({config.hidden, config.heads * config.head_dim, config.feed_forward})) {}

  static uint64_t QkvColumns(const LlamaConfig& config) {
    return (uint64_t{config.heads} + 2 * config.kv_heads) * config.head_dim;
  }

  Buffer hidden;        // f32 [rows, hidden]: the residual stream.
  Buffer inner;         // f32 [rows, qkv columns], later [rows, feed_forward].
  Buffer attended;      // f32 [rows, heads * head_dim]
  Activations operand;  // What the next matmul reads.
};

class CpuLlama final : public LlamaModel {
 public:
  CpuLlama(const ModelFile& file, const LlamaOptions& options, kernels::BoundOps ops,
           std::unique_ptr<kernels::KernelContext> context, LlamaWeights weights)
      : config_(file.config()),
        info_(InfoOf(file, weights)),
        ops_(std::move(ops)),
        context_(std::move(context)),
        weights_(std::move(weights)),
        rope_(RopeFrequencies(config_.rope, weights_.rope_factors), RopeMagnitude(config_.rope),
              info_.context_tokens),
        layout_({.layers = config_.layers,
                 .kv_heads = config_.kv_heads,
                 .head_dim = config_.head_dim,
                 .block_tokens = options.block_tokens,
                 .type = options.kv_type.value_or(info_.f32_weights ? KvType::kF32
                                                                    : KvType::kBf16)}),
        batch_rows_max_(options.batch_rows_max),
        work_(config_, options.batch_rows_max) {}

  const ModelInfo& info() const override { return info_; }
  uint32_t batch_rows_max() const override { return batch_rows_max_; }
  KvLayout kv_layout() const override { return layout_; }

  uint64_t packed_bytes() const override { return weights_.packed.size(); }

  std::string numerics_class() const override {
    return absl::StrCat("cpu/", std::string(kernels::CpuLevelName(ops_.level)), "/w-exact-r",
                        kernels::kPackingRevision, "/", KvTypeName(layout_.type));
  }

  std::string description() const override {
    const std::string fallbacks =
        ops_.fallbacks.empty()
            ? ""
            : absl::StrCat(" (reference code for ", absl::StrJoin(ops_.fallbacks, ", "), ")");
    return absl::StrCat(info_.name, ": ", info_.layers, " layers, context ", info_.context_tokens,
                        ", ", std::string(kernels::CpuLevelName(ops_.level)), fallbacks, ", ",
                        context_->threads(), " threads, KV ", KvTypeName(layout_.type), ", ",
                        weights_.packed.size() >> 20, " MiB of weights ", weights_.origin);
  }

  void Forward(const ForwardBatch& batch, const PagedKvView& kv, LayerObserver* observer,
               absl::Span<float> logits) override {
    BeginBatch(batch, kv, logits);
    ops_.embed({.table = &weights_.embeddings, .tokens = batch.tokens.data(), .rows = rows_,
                .out = hidden()},
               *context_);
    for (uint32_t i = 0; i < config_.layers; ++i) {
      const LlamaLayer& layer = weights_.layers[i];
      AppendKv(layer, i, kv);
      if (observer != nullptr) observer->OnLayerWritten(i);
      // From here on the last layer serves the logits alone.
      if (i + 1 == config_.layers && !KeepLogitRows(batch)) return;
      Attend(layer, i, kv);
      FeedForward(layer);
    }
    Head(logits);
  }

 private:
  float* hidden() const { return work_.hidden.as<float>(); }
  uint64_t q_columns() const { return uint64_t{config_.heads} * config_.head_dim; }
  uint64_t qkv_columns() const { return Workspace::QkvColumns(config_); }

  void BeginBatch(const ForwardBatch& batch, const PagedKvView& kv, absl::Span<float> logits) {
    CHECK(kv.layout == layout_);
    sequences_.clear();
    rows_ = 0;
    uint64_t logit_rows = 0;
    uint32_t positions = 0;
    for (const ForwardSequence& sequence : batch.sequences) {
      CHECK(sequence.token_count >= 1 && sequence.logit_rows <= sequence.token_count);
      sequences_.push_back({.blocks = sequence.blocks,
                            .start_position = sequence.start_position,
                            .row_count = sequence.token_count});
      rows_ += sequence.token_count;
      logit_rows += sequence.logit_rows;
      positions = std::max(positions, sequence.start_position + sequence.token_count);
    }
    CHECK(rows_ >= 1 && rows_ <= batch_rows_max_) << rows_ << " rows";
    CHECK_EQ(batch.tokens.size(), rows_);
    CHECK_EQ(logits.size(), logit_rows * config_.vocabulary_size);
    for (const uint32_t token : batch.tokens) CHECK_LT(token, config_.vocabulary_size);
    rope_.Cover(positions);
  }

  // inner = norm(hidden) Wqkv, rotated; K and V into their blocks.
  void AppendKv(const LlamaLayer& layer, uint32_t index, const PagedKvView& kv) {
    Norm(layer.attention_norm, layer.qkv);
    Matmul(layer.qkv, layer.qkv_bias, Epilogue::kStore, work_.inner.as<float>(), qkv_columns());
    ops_.rope_append({.qkv = work_.inner.as<float>(), .qkv_stride = qkv_columns(),
                      .cos = rope_.cos(), .sin = rope_.sin(), .rope_dims = config_.rope.dimensions,
                      .heads = config_.heads, .sequences = sequences_, .kv = kv, .layer = index},
                     *context_);
  }

  // hidden += attention(inner) Wo
  void Attend(const LlamaLayer& layer, uint32_t index, const PagedKvView& kv) {
    ops_.attention({.q = work_.inner.as<float>(), .q_stride = qkv_columns(),
                    .out = work_.attended.as<float>(), .out_stride = q_columns(),
                    .heads = config_.heads,
                    .scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim)),
                    .sequences = sequences_, .kv = kv, .layer = index},
                   *context_);
    Quantize(work_.attended.as<float>(), q_columns(), layer.attention_output);
    Matmul(layer.attention_output, layer.attention_output_bias, Epilogue::kAdd, hidden(),
           config_.hidden);
  }

  // hidden += (silu(norm(hidden) Wgate) * (norm(hidden) Wup)) Wdown
  void FeedForward(const LlamaLayer& layer) {
    Norm(layer.feed_forward_norm, layer.gate_up);
    Matmul(layer.gate_up, layer.gate_up_bias, Epilogue::kSwiGlu, work_.inner.as<float>(),
           config_.feed_forward);
    Quantize(work_.inner.as<float>(), config_.feed_forward, layer.down);
    Matmul(layer.down, layer.down_bias, Epilogue::kAdd, hidden(), config_.hidden);
  }

  void Head(absl::Span<float> logits) {
    Norm(weights_.output_norm, weights_.head);
    Matmul(weights_.head, {}, Epilogue::kStore, logits.data(), config_.vocabulary_size);
  }

  // Moves the rows whose logits are wanted to the front, and forgets the others. False when there is none.
  bool KeepLogitRows(const ForwardBatch& batch) {
    uint32_t kept = 0, row = 0;
    size_t kept_sequences = 0;
    for (const ForwardSequence& sequence : batch.sequences) {
      const uint32_t skipped = sequence.token_count - sequence.logit_rows;
      for (uint32_t t = skipped; t < sequence.token_count; ++t, ++kept) MoveRow(row + t, kept);
      row += sequence.token_count;
      if (sequence.logit_rows == 0) continue;
      sequences_[kept_sequences++] = {.blocks = sequence.blocks,
                                      .start_position = sequence.start_position + skipped,
                                      .row_count = sequence.logit_rows};
    }
    sequences_.resize(kept_sequences);
    rows_ = kept;
    return kept > 0;
  }

  void MoveRow(uint32_t from, uint32_t to) {
    if (from == to) return;
    float* const inner = work_.inner.as<float>();
    std::memcpy(hidden() + uint64_t{to} * config_.hidden,
                hidden() + uint64_t{from} * config_.hidden, config_.hidden * sizeof(float));
    std::memcpy(inner + to * qkv_columns(), inner + from * qkv_columns(),
                q_columns() * sizeof(float));
  }

  // operand = norm(hidden), as `next` wants it.
  void Norm(const std::vector<float>& weight, const PackedMatrix& next) {
    ops_.rms_norm({.x = hidden(), .x_stride = config_.hidden, .weight = weight.data(),
                   .tokens = rows_, .hidden = config_.hidden, .epsilon = config_.rms_epsilon,
                   .format = next.activation_format(), .y = &work_.operand},
                  *context_);
  }

  // operand = x [rows, columns], as `next` wants it.
  void Quantize(const float* x, uint64_t columns, const PackedMatrix& next) {
    ops_.quantize({.x = x, .x_stride = columns, .rows = rows_,
                   .columns = static_cast<uint32_t>(columns), .format = next.activation_format(),
                   .y = &work_.operand},
                  *context_);
  }

  // out [rows, columns] = operand W^T + bias
  void Matmul(const PackedMatrix& matrix, const std::vector<float>& bias, Epilogue epilogue,
              float* out, uint64_t columns) {
    ops_.matmul({.x = &work_.operand, .weights = &matrix,
                 .bias = bias.empty() ? nullptr : bias.data(), .epilogue = epilogue, .out = out,
                 .out_stride = columns},
                *context_);
  }

  const LlamaConfig config_;
  const ModelInfo info_;
  const kernels::BoundOps ops_;
  const std::unique_ptr<kernels::KernelContext> context_;
  const LlamaWeights weights_;
  RopeTable rope_;
  const KvLayout layout_;
  const uint32_t batch_rows_max_;
  Workspace work_;

  // The batch in hand.
  std::vector<SequenceRows> sequences_;
  uint32_t rows_ = 0;
};

absl::Status Validate(const LlamaOptions& options) {
  if (options.batch_rows_max < 1 || options.batch_rows_max > kBatchRowsMax) {
    return absl::InvalidArgumentError(absl::StrCat("batch_rows_max is ", options.batch_rows_max,
                                                   ", must be in [1, ", kBatchRowsMax, "]"));
  }
  if (options.threads > kernels::ThreadPool::kThreadsMax) {
    return absl::InvalidArgumentError(absl::StrCat("threads is ", options.threads,
                                                   ", must be in [0, ",
                                                   kernels::ThreadPool::kThreadsMax, "]"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<LlamaModel>> LlamaModel::Load(const ModelFile& file,
                                                             const LlamaOptions& options) {
  RETURN_IF_ERROR(Validate(options));
  ASSIGN_OR_RETURN(kernels::BoundOps ops, kernels::Bind(options.cpu_level));
#ifdef BATON_PLANTED_FAULTS
  if (options.planted_attention != nullptr) ops.attention = options.planted_attention;
#endif
  const uint32_t threads = options.threads != 0
                               ? options.threads
                               : std::min(CoresOfThisProcess(), kernels::ThreadPool::kThreadsMax);
  auto context = std::make_unique<kernels::KernelContext>(threads);
  ASSIGN_OR_RETURN(
      LlamaWeights weights,
      LoadWeights(file, {.layout = ops.layout, .cache_folder = options.cache_folder}, *context));
  auto model = std::make_unique<CpuLlama>(file, options, std::move(ops), std::move(context),
                                          std::move(weights));
  RETURN_IF_ERROR(kernels::Validate(model->kv_layout()));
  return model;
}

}  // namespace baton::model
