// Spells values as bytes so that no two inputs spell the same ones: the input of every digest in this folder.
// Numbers are little-endian, strings carry their 32-bit length.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace baton::kvstore {

class CanonicalBytes {
 public:
  // `domain` names what the bytes stand for, so that digests of different things never meet.
  explicit CanonicalBytes(absl::string_view domain) : bytes_(domain) {}

  CanonicalBytes& Add32(uint32_t value);
  CanonicalBytes& AddString(absl::string_view value);

  const std::string& bytes() const { return bytes_; }
  // SHA-256 over bytes(), 32 raw bytes.
  std::string Sha256() const;

 private:
  std::string bytes_;
};

}  // namespace baton::kvstore
