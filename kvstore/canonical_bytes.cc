#include "kvstore/canonical_bytes.h"

#include <limits>

#include "base/check.h"
#include "openssl/sha.h"

namespace baton::kvstore {

CanonicalBytes& CanonicalBytes::Add32(uint32_t value) {
  for (int shift = 0; shift < 32; shift += 8) bytes_.push_back(static_cast<char>(value >> shift));
  return *this;
}

CanonicalBytes& CanonicalBytes::AddString(absl::string_view value) {
  CHECK_LE(value.size(), std::numeric_limits<uint32_t>::max());
  Add32(static_cast<uint32_t>(value.size()));
  bytes_.append(value.data(), value.size());
  return *this;
}

std::string CanonicalBytes::Sha256() const {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(bytes_.data()), bytes_.size(),
         reinterpret_cast<unsigned char*>(digest.data()));
  return digest;
}

}  // namespace baton::kvstore
