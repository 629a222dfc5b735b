// What must be equal before two workers exchange KV: compared field by field when a link opens.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "kernels/kv_layout.h"

namespace baton::kvstore {

// The order of bytes inside (layer, block), drawn in kernels/kv_layout.h; peers with another one are refused.
inline constexpr char kKvOrder[] = "layer_block_head_kpair_vpair";

struct Compatibility {
  std::string model_digest;    // 32 bytes.
  std::string numerics_class;  // model::Model::numerics_class().
  kernels::KvLayout layout;

  // SHA-256 over all fields in a canonical form, 32 raw bytes.
  std::string Digest() const;
};

// FAILED_PRECONDITION naming the first field that differs, with both values.
absl::Status CheckCompatible(const Compatibility& ours, const Compatibility& theirs);

}  // namespace baton::kvstore
