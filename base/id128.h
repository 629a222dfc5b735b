// A random 128-bit identity: of a process (incarnation) or of a request inside the cluster.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <ostream>
#include <string>

#include "absl/hash/hash.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton::base {

struct Id128 {
  uint64_t high = 0;
  uint64_t low = 0;

  // From the kernel's random source; never zero.
  static Id128 Random();
  // From the 16 bytes of ToBytes(). INVALID_ARGUMENT when there are not 16 of them.
  static absl::StatusOr<Id128> FromBytes(absl::string_view bytes);

  std::string ToBytes() const;  // 16 bytes, big-endian.
  std::string ToHex() const;    // 32 digits.
  bool is_zero() const { return high == 0 && low == 0; }

  auto operator<=>(const Id128&) const = default;
  template <typename H>
  friend H AbslHashValue(H state, const Id128& id) {
    return H::combine(std::move(state), id.high, id.low);
  }
  friend std::ostream& operator<<(std::ostream& out, const Id128& id) { return out << id.ToHex(); }
};

}  // namespace baton::base
