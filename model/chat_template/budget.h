// What one rendering may still spend: operations, bytes of work, and bytes that are alive together.
//
// Every loop of the interpreter spends from it, so a hostile template ends in an error after a
// fraction of a second and a few megabytes. Thread-compatible: one per rendering.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/check.h"

namespace baton::model::jinja {

class Budget {
 public:
  Budget(uint64_t operations_max, uint64_t bytes_max)
      : operations_max_(operations_max),
        bytes_max_(bytes_max),
        units_left_(operations_max * kUnitsPerOperation),
        bytes_left_(bytes_max) {}
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  // An operation: a node evaluated, an element visited.
  absl::Status Spend(uint64_t operations = 1) {
    if (operations > units_left_ / kUnitsPerOperation) return OutOfOperations();
    units_left_ -= operations * kUnitsPerOperation;
    return absl::OkStatus();
  }
  // Bytes that are read or written.
  absl::Status SpendBytes(uint64_t bytes) {
    if (bytes > units_left_) return OutOfOperations();
    units_left_ -= bytes;
    return absl::OkStatus();
  }
  // Bytes that stay until Release().
  absl::Status Hold(uint64_t bytes) {
    if (bytes > bytes_left_) return OutOfBytes();
    bytes_left_ -= bytes;
    return absl::OkStatus();
  }
  void Release(uint64_t bytes) {
    bytes_left_ += bytes;
    CHECK_LE(bytes_left_, bytes_max_);
  }

 private:
  // An operation takes about as long as work on this many bytes.
  static constexpr uint64_t kUnitsPerOperation = 64;

  absl::Status OutOfOperations() const;
  absl::Status OutOfBytes() const;

  const uint64_t operations_max_, bytes_max_;
  uint64_t units_left_;
  uint64_t bytes_left_;
};

}  // namespace baton::model::jinja
