// A model without weights, for tests: its arithmetic is a hash, so that anything wrong in its input
// changes its output.
//
//   K, V of (layer, position p)  =  hash(token, p, layer, all K and V of positions < p read back
//   through the block table) logits of p                  =  hash(the above of all layers)
//
// One stale block, wrong position, wrong order or wrong token therefore changes every later token
// of the sequence, and nothing else in a batch can. What it may print can be steered by `script`
// and `forced`, its speed by `step_time` and `row_time`; every KV byte is both written and read, so
// copies are checked in full.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/kv_layout.h"
#include "model/model.h"

namespace baton::fakes {

// The token that stands at an absolute position whatever came before.
struct ForcedToken {
  uint32_t position = 0;
  uint32_t token = 0;
};

struct FakeModelOptions {
  std::string name = "fake";
  uint64_t seed = 1;   // Stands for the weights: another seed, another digest.
  std::string digest;  // Empty: made of the seed.
  uint32_t vocabulary_size = 256;
  uint32_t context_tokens = 4096;
  uint32_t layers = 2;
  uint32_t kv_heads = 1;
  uint32_t head_dim = 2;
  uint32_t block_tokens = 16;
  uint32_t batch_rows_max = 1024;

  // Not empty: greedy output at absolute position p is script[p % script.size()].
  std::vector<uint32_t> script;
  // Wins over the script; at most one a position.
  std::vector<ForcedToken> forced;

  // A Forward() takes step_time + rows * row_time at least, spread evenly over the layers. Zero: as
  // fast as it can.
  absl::Duration step_time;
  absl::Duration row_time;
};

class FakeModel final : public model::Model {
 public:
  explicit FakeModel(FakeModelOptions options);

  const model::ModelInfo& info() const override { return info_; }
  std::string numerics_class() const override { return "fake"; }
  uint32_t batch_rows_max() const override { return options_.batch_rows_max; }
  kernels::KvLayout kv_layout() const;

  // CHECKs what model::Model::Forward() requires.
  void Forward(const model::ForwardBatch& batch, const kernels::PagedKvView& kv,
               model::LayerObserver* observer, absl::Span<float> logits) override;

 private:
  // One row of the batch.
  struct Row {
    uint32_t token;
    uint32_t position;
    uint64_t hidden;  // Of the layers so far.
  };

  void CheckBatch(const model::ForwardBatch& batch, const kernels::PagedKvView& kv,
                  absl::Span<float> logits) const;
  // Writes the KV of the sequence's rows in `layer`, folds what it read into their `hidden`.
  void RunLayer(uint32_t layer, const model::ForwardSequence& sequence,
                const kernels::PagedKvView& kv, absl::Span<Row> rows) const;
  void WriteLogits(const Row& row, absl::Span<float> logits) const;

  FakeModelOptions options_;
  model::ModelInfo info_;
};

}  // namespace baton::fakes
