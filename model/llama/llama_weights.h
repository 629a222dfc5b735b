// A Llama's weights in the form that the ops of one CPU level read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/buffer.h"
#include "kernels/kernel_context.h"
#include "kernels/matmul/packed_matrix.h"
#include "kernels/tensor_view.h"
#include "model/weights/model_file.h"

namespace baton::model {

struct LlamaLayer {
  std::vector<float> attention_norm;      // [hidden]
  kernels::PackedMatrix qkv;              // [(heads + 2 * kv_heads) * head_dim, hidden]
  std::vector<float> qkv_bias;            // As many as rows; like the other biases, empty if there is none.
  kernels::PackedMatrix attention_output; // [hidden, heads * head_dim]
  std::vector<float> attention_output_bias;
  std::vector<float> feed_forward_norm;   // [hidden]
  kernels::PackedMatrix gate_up;          // [2 * feed_forward, hidden], RowOrder::kGateUp
  std::vector<float> gate_up_bias;        // Gate's, then up's.
  kernels::PackedMatrix down;             // [hidden, feed_forward]
  std::vector<float> down_bias;
};

// Movable; the matrices point into `packed`.
struct LlamaWeights {
  kernels::TensorView embeddings;   // [vocabulary, hidden], in the file's mapping.
  std::vector<LlamaLayer> layers;
  std::vector<float> output_norm;   // [hidden]
  kernels::PackedMatrix head;       // [vocabulary, hidden]
  std::vector<float> rope_factors;  // [rope.dimensions / 2], or empty.
  kernels::Buffer packed;
  std::string origin;               // Where the packed bytes came from, for the log.
};

struct LoadWeightsArgs {
  kernels::PackedLayout layout = kernels::PackedLayout::kRows;
  std::string cache_folder;  // Empty: nothing is read from or written to disk.
};

// Reads the packed file if it is there and whole, otherwise packs (on the context's threads) and keeps the result for the
// next start; that this failed is told in `origin` and is no error. `file` outlives the result.
absl::StatusOr<LlamaWeights> LoadWeights(const ModelFile& file, const LoadWeightsArgs& args,
                                         kernels::KernelContext& context);

}  // namespace baton::model
