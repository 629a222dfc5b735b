// Which tensors a Llama has, under which names, and of which shape. Both file formats are held against this one table,
// so that no tensor of a file is silently ignored and none that the forward pass needs is missing.
#pragma once

#include <optional>
#include <string>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/tensor_view.h"
#include "model/llama/llama_config.h"

namespace baton::model {

// By GGUF name, in the order of names.
using TensorMap = absl::btree_map<std::string, kernels::TensorView>;

// "blk.3.attn_q.weight" for "model.layers.3.self_attn.q_proj.weight"; absent: no such tensor in a Llama.
std::optional<std::string> GgufNameOf(absl::string_view hugging_face_name);

// INVALID_ARGUMENT naming the tensor that is unknown, missing, or of a wrong shape or type.
absl::Status CheckLlamaTensors(const LlamaConfig& config, const TensorMap& tensors);

}  // namespace baton::model
