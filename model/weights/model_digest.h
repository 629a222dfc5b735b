// SHA-256 of what decides a model's results.
#pragma once

#include <string>

#include "model/llama/llama_config.h"
#include "model/weights/llama_tensors.h"

namespace baton::model {

// 32 raw bytes over the configuration and each tensor's name, type, shape and bytes, in the order of names. Every piece
// goes in with its length, so that no two models share a spelling.
std::string ModelDigest(const LlamaConfig& config, const TensorMap& tensors);

}  // namespace baton::model
