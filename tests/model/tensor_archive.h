// The F32 tensors of a safetensors file of expected values, read with no code of the product.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

namespace baton::model {

struct ArchivedTensor {
  std::vector<uint64_t> shape;
  std::vector<float> values;
};

// Throws when the file is not there or not understood. Tensors of other dtypes are left out.
std::unordered_map<std::string, ArchivedTensor> ReadTensorArchive(const std::string& path);

}  // namespace baton::model
