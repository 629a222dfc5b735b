// A Llama in a Hugging Face folder: config.json and model.safetensors, or the shards that
// model.safetensors.index.json names. Rows of q and k are copied into interleaved RoPE order; all else is a view.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "model/weights/model_file.h"

namespace baton::model {

absl::StatusOr<std::unique_ptr<ModelFile>> OpenSafetensorsFolder(const std::string& folder);

}  // namespace baton::model
