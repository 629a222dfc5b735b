#include "base/id128.h"

#include <sys/random.h>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace baton::base {

Id128 Id128::Random() {
  Id128 id;
  while (id.is_zero()) {
    CHECK(getrandom(&id, sizeof id, 0) == static_cast<ssize_t>(sizeof id));
  }
  return id;
}

namespace {

uint64_t LoadBigEndian(absl::string_view bytes) {
  uint64_t value = 0;
  for (const char byte : bytes) value = value << 8 | static_cast<uint8_t>(byte);
  return value;
}

}  // namespace

absl::StatusOr<Id128> Id128::FromBytes(absl::string_view bytes) {
  if (bytes.size() != 16) {
    return absl::InvalidArgumentError(
        absl::StrCat("an id has ", bytes.size(), " bytes, must have 16"));
  }
  return Id128{.high = LoadBigEndian(bytes.substr(0, 8)),
               .low = LoadBigEndian(bytes.substr(8))};
}

std::string Id128::ToBytes() const {
  std::string bytes(16, '\0');
  for (int i = 0; i < 8; ++i) {
    bytes[i] = static_cast<char>(high >> (56 - 8 * i));
    bytes[8 + i] = static_cast<char>(low >> (56 - 8 * i));
  }
  return bytes;
}

std::string Id128::ToHex() const { return absl::BytesToHexString(ToBytes()); }

}  // namespace baton::base
