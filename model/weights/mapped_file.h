// A regular file mapped for reading. The mapping stays until the object goes; any thread may read it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace baton::model {

class MappedFile {
 public:
  // NOT_FOUND: no such file. INVALID_ARGUMENT: not a regular file, or empty. UNAVAILABLE: the system refused.
  static absl::StatusOr<std::unique_ptr<MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  absl::Span<const uint8_t> bytes() const { return bytes_; }

 private:
  explicit MappedFile(absl::Span<const uint8_t> bytes) : bytes_(bytes) {}

  absl::Span<const uint8_t> bytes_;
};

// A small text file, read whole. INVALID_ARGUMENT when it is longer than `bytes_max`.
absl::StatusOr<std::string> ReadTextFile(const std::string& path, uint64_t bytes_max);

}  // namespace baton::model
