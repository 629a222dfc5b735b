#include "kvstore/block_hash.h"

#include <bit>

#include "base/check.h"
#include "kvstore/canonical_bytes.h"

namespace baton::kvstore {

std::string BlockExtras::Encode() const {
  CanonicalBytes encoded("");
  encoded.AddString("model").AddString(model_digest);
  encoded.AddString("numerics").AddString(numerics_class);
  encoded.AddString("adapter").AddString(adapter_digest);
  encoded.AddString("scale").Add32(std::bit_cast<uint32_t>(adapter_scale));
  encoded.AddString("salt").AddString(cache_salt);
  return encoded.bytes();
}

std::string BlockDigest(absl::string_view parent, absl::Span<const uint32_t> tokens,
                        absl::string_view extras) {
  CHECK(parent.empty() || parent.size() == 32) << "a parent of " << parent.size() << " bytes";
  CanonicalBytes block("baton.block.v1");
  block.AddString(parent).AddString(extras).Add32(static_cast<uint32_t>(tokens.size()));
  for (const uint32_t token : tokens) block.Add32(token);
  return block.Sha256();
}

std::vector<std::string> BlockDigests(absl::Span<const uint32_t> tokens, uint32_t block_tokens,
                                      absl::string_view extras) {
  CHECK(block_tokens > 0);
  std::vector<std::string> digests;
  digests.reserve(tokens.size() / block_tokens);
  for (size_t begin = 0; begin + block_tokens <= tokens.size(); begin += block_tokens) {
    const absl::string_view parent = digests.empty() ? absl::string_view() : digests.back();
    digests.push_back(BlockDigest(parent, tokens.subspan(begin, block_tokens), extras));
  }
  return digests;
}

}  // namespace baton::kvstore
