// The directory of one *.safetensors file:  u64 header bytes | JSON header | tensor bytes, without gaps or overlaps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/tensor_view.h"

namespace baton::model {

struct SafetensorsEntry {
  std::string name;
  kernels::TensorView view;  // Into the file's bytes.
};

// Entries in the order of their bytes. INVALID_ARGUMENT naming the tensor or offset, the value, and what is legal.
// `file` outlives the result.
absl::StatusOr<std::vector<SafetensorsEntry>> ParseSafetensors(absl::Span<const uint8_t> file);

}  // namespace baton::model
