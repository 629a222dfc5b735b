// A causal language model as the runner sees it: rows of tokens in, KV into paged blocks, logits out.
//
// The row contract (docs/impl.md): what is computed for a row depends on that row's token, its position, the weights and
// the KV of the earlier positions of its sequence, and on nothing else: not on the batch, the chunk, the block size, the
// place in a tile or the number of threads. So a sequence gives the same bits alone and in any mixture.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "kernels/kv_layout.h"

namespace baton::model {

// What everyone needs to know of a loaded model.
struct ModelInfo {
  std::string name;             // From the file's metadata, or the file's name.
  std::string architecture;     // "llama"
  std::string digest;           // SHA-256 of the model's content, 32 raw bytes.
  uint32_t vocabulary_size = 0;
  uint32_t context_tokens = 0;  // Prompt and output together.
  uint32_t layers = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  bool f32_weights = false;     // All matrices are F32: KV is f32 by default.
};

// Consecutive positions of one sequence: a prefill chunk, or one decode row.
struct ForwardSequence {
  // Block table; covers positions [0, start_position + token_count). Blocks that hold positions >= start_position are
  // written, the others are only read.
  absl::Span<const uint32_t> blocks;
  uint32_t start_position = 0;
  uint32_t token_count = 0;  // >= 1.
  // Logits are wanted of the last `logit_rows` of its rows; [0, token_count].
  uint32_t logit_rows = 0;
};

struct ForwardBatch {
  // Rows of all sequences, one after another; each < vocabulary_size. Size: the sum of token_count.
  absl::Span<const uint32_t> tokens;
  absl::Span<const ForwardSequence> sequences;
};

// Told on the calling thread, between two layers, that K and V of every row of the batch stand in the arena for `layer`.
class LayerObserver {
 public:
  virtual ~LayerObserver() = default;
  virtual void OnLayerWritten(uint32_t layer) = 0;
};

// Thread-compatible: one Forward() at a time. Uses its own kernel threads inside.
class Model {
 public:
  virtual ~Model() = default;

  virtual const ModelInfo& info() const = 0;

  // Names everything that decides bits: backend, ISA level, packing, kernel revision. Two models of one digest and one
  // numerics class and KV layout give equal bits.
  virtual std::string numerics_class() const = 0;

  // Rows of one Forward(), at most.
  virtual uint32_t batch_rows_max() const = 0;

  // Computes the batch. `logits` [sum of logit_rows, vocabulary_size] f32, rows in batch order; `observer` may be null.
  // REQUIRES: all of what the structs above say, total rows in [1, batch_rows_max()], kv.layout of this model.
  virtual void Forward(const ForwardBatch& batch, const kernels::PagedKvView& kv,
                       LayerObserver* observer, absl::Span<float> logits) = 0;
};

}  // namespace baton::model
