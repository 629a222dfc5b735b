// The GGUF container, versions 2 and 3: typed metadata and a directory of tensors, before anyone asks what they mean.
//
//   header | metadata: key, type, value … | tensors: name, dims, type, offset … | padding | tensor bytes
//
// Everything is a view into the file's bytes, which outlive it. What comes out of ParseGguf() lies inside the file:
// strings, arrays and dims were checked one by one. Tensor types are not judged here. Immutable: any thread may read.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace baton::model {

enum class GgufValueType : uint32_t {
  kUint8, kInt8, kUint16, kInt16, kUint32, kInt32, kFloat32, kBool, kString, kArray, kUint64, kInt64, kFloat64,
};

struct GgufValue {
  GgufValueType type = GgufValueType::kUint8;
  GgufValueType element_type = GgufValueType::kUint8;  // Of arrays.
  uint64_t count = 0;                                  // Of arrays.
  // A scalar's bytes, a string's characters, or an array's elements (strings with their length before each).
  absl::Span<const uint8_t> bytes;
};

// Typed look-ups. A key that is absent is no error; a value of another type or out of range is INVALID_ARGUMENT.
class GgufMetadata {
 public:
  bool Has(absl::string_view key) const { return values_.contains(key); }

  // Any integer type, within [low, high].
  absl::StatusOr<std::optional<uint32_t>> Uint(absl::string_view key, uint32_t low,
                                               uint32_t high) const;
  // float32 or float64, finite.
  absl::StatusOr<std::optional<float>> Float(absl::string_view key) const;
  absl::StatusOr<std::optional<bool>> Bool(absl::string_view key) const;
  absl::StatusOr<std::optional<absl::string_view>> String(absl::string_view key) const;
  // Arrays; at most `count_max` elements. Absent: empty.
  absl::StatusOr<std::vector<absl::string_view>> Strings(absl::string_view key,
                                                         uint64_t count_max) const;
  absl::StatusOr<std::vector<uint32_t>> Uints(absl::string_view key, uint64_t count_max) const;

  // INVALID_ARGUMENT when the key is there already.
  absl::Status Add(absl::string_view key, const GgufValue& value);

 private:
  const GgufValue* Find(absl::string_view key) const;

  absl::flat_hash_map<absl::string_view, GgufValue> values_;
};

struct GgufTensor {
  absl::string_view name;
  uint32_t type = 0;       // ggml's number.
  uint64_t columns = 0;    // ne[0], at least 1.
  uint64_t rows = 0;       // ne[1]; 1 for a vector. ne[2] and ne[3] are 1.
  uint64_t offset = 0;     // Into GgufContainer::data; a multiple of the alignment, not beyond its end.
};

struct GgufContainer {
  uint32_t version = 0;
  GgufMetadata metadata;
  std::vector<GgufTensor> tensors;
  absl::Span<const uint8_t> data;  // From the first tensor's place to the end of the file.
};

// INVALID_ARGUMENT naming the key, tensor or offset, the value, and what is legal.
absl::StatusOr<GgufContainer> ParseGguf(absl::Span<const uint8_t> file);

}  // namespace baton::model
