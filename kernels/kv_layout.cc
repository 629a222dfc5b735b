#include "kernels/kv_layout.h"

#include "absl/strings/str_cat.h"

namespace baton::kernels {
namespace {

constexpr uint32_t kLayersMax = 1024;
constexpr uint32_t kHeadsMax = 1024;
constexpr uint32_t kHeadDimMax = 1024;

absl::Status CheckRange(const char* field, uint32_t value, uint32_t low, uint32_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", value, ", must be in [", low, ", ", high, "]"));
}

}  // namespace

absl::Status Validate(const KvLayout& layout) {
  if (absl::Status s = CheckRange("layers", layout.layers, 1, kLayersMax); !s.ok()) return s;
  if (absl::Status s = CheckRange("kv_heads", layout.kv_heads, 1, kHeadsMax); !s.ok()) return s;
  if (absl::Status s = CheckRange("head_dim", layout.head_dim, 2, kHeadDimMax); !s.ok()) return s;
  if (layout.head_dim % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("head_dim is ", layout.head_dim, ", must be even"));
  }
  switch (layout.block_tokens) {
    case 8: case 16: case 32: case 64: case 128:
      return absl::OkStatus();
    default:
      return absl::InvalidArgumentError(absl::StrCat("block_tokens is ", layout.block_tokens,
                                                     ", must be 8, 16, 32, 64 or 128"));
  }
}

}  // namespace baton::kernels
