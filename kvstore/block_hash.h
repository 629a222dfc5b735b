// Identity of a full KV block: SHA-256 over its parent's identity, its tokens and what else decides its bytes.
//
//   digest(block) = SHA-256( "baton.block.v1" ‖ len(parent) parent ‖ len(extras) extras ‖ count(tokens) tokens )
//
// Lengths are 32-bit and numbers little-endian, so that no two inputs spell the same bytes. `extras` is what
// BlockExtras::Encode() gives: model digest, numerics class, adapter digest and scale, tenant salt, each tagged and
// length-prefixed. The first block's parent is empty.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace baton::kvstore {

struct BlockExtras {
  std::string model_digest;    // 32 bytes.
  std::string numerics_class;
  std::string adapter_digest;  // Empty: the base model.
  float adapter_scale = 1.0f;
  std::string cache_salt;      // Empty: shared by all tenants.

  std::string Encode() const;
};

// 32 raw bytes. `parent` is empty or 32 bytes.
std::string BlockDigest(absl::string_view parent, absl::Span<const uint32_t> tokens,
                        absl::string_view extras);

// Digests of all full blocks of a sequence, in order; tokens.size() / block_tokens of them.
std::vector<std::string> BlockDigests(absl::Span<const uint32_t> tokens, uint32_t block_tokens,
                                      absl::string_view extras);

}  // namespace baton::kvstore
