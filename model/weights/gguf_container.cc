#include "model/weights/gguf_container.h"

#include <cmath>
#include <cstring>
#include <type_traits>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace baton::model {
namespace {

constexpr uint32_t kVersionMin = 2;
constexpr uint32_t kVersionMax = 3;
// Llama 3.1 405B has 1,138 tensors; files in use have below a hundred keys.
constexpr uint64_t kTensorsMax = 1 << 14;
constexpr uint64_t kMetadataMax = 1 << 12;
constexpr uint64_t kKeyBytesMax = 65535;     // The format's own bound.
constexpr uint64_t kTensorNameBytesMax = 256;
constexpr uint64_t kStringBytesMax = 16 << 20;
constexpr uint32_t kDimsMax = 4;             // The format's own bound.
constexpr uint64_t kElementsMax = uint64_t{1} << 40;
constexpr uint32_t kAlignmentDefault = 32;
constexpr uint32_t kAlignmentMin = 8;
constexpr uint32_t kAlignmentMax = 1 << 16;

template <typename T>
T Load(const uint8_t* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

absl::string_view AsText(absl::Span<const uint8_t> bytes) {
  return absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

// A name from the file, fit to be printed.
std::string Quoted(absl::string_view name) {
  constexpr size_t kShown = 80;
  return absl::StrCat("'", absl::CHexEscape(name.substr(0, kShown)),
                      name.size() > kShown ? "…'" : "'");
}

// Bytes of a scalar; 0 for strings, arrays and unknown numbers.
uint64_t ScalarBytes(GgufValueType type) {
  switch (type) {
    case GgufValueType::kUint8: case GgufValueType::kInt8: case GgufValueType::kBool:
      return 1;
    case GgufValueType::kUint16: case GgufValueType::kInt16:
      return 2;
    case GgufValueType::kUint32: case GgufValueType::kInt32: case GgufValueType::kFloat32:
      return 4;
    case GgufValueType::kUint64: case GgufValueType::kInt64: case GgufValueType::kFloat64:
      return 8;
    case GgufValueType::kString: case GgufValueType::kArray:
      break;
  }
  return 0;
}

// Reads the file from front to back and never past its end.
class Cursor {
 public:
  explicit Cursor(absl::Span<const uint8_t> file) : file_(file) {}

  uint64_t offset() const { return offset_; }
  uint64_t remaining() const { return file_.size() - offset_; }

  absl::StatusOr<absl::Span<const uint8_t>> Take(uint64_t bytes, absl::string_view what) {
    if (bytes > remaining()) {
      return absl::InvalidArgumentError(absl::StrCat(what, " at offset ", offset_, " needs ", bytes,
                                                     " bytes, the file has ", remaining(),
                                                     " more"));
    }
    const absl::Span<const uint8_t> taken = file_.subspan(offset_, bytes);
    offset_ += bytes;
    return taken;
  }

  template <typename T>
  absl::StatusOr<T> Read(absl::string_view what) {
    ASSIGN_OR_RETURN(const absl::Span<const uint8_t> bytes, Take(sizeof(T), what));
    return Load<T>(bytes.data());
  }

  absl::StatusOr<absl::Span<const uint8_t>> ReadString(absl::string_view what, uint64_t bytes_max) {
    ASSIGN_OR_RETURN(const uint64_t bytes, Read<uint64_t>(what));
    if (bytes > bytes_max) {
      return absl::InvalidArgumentError(absl::StrCat(what, " at offset ", offset_, " has ", bytes,
                                                     " bytes, must have at most ", bytes_max));
    }
    return Take(bytes, what);
  }

 private:
  absl::Span<const uint8_t> file_;
  uint64_t offset_ = 0;
};

absl::StatusOr<GgufValueType> ReadValueType(Cursor& cursor, const std::string& what) {
  ASSIGN_OR_RETURN(const uint32_t type, cursor.Read<uint32_t>(what));
  if (type > static_cast<uint32_t>(GgufValueType::kFloat64)) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " has value type ", type, ", must be in [0, 12]"));
  }
  return static_cast<GgufValueType>(type);
}

absl::StatusOr<GgufValue> ReadArray(Cursor& cursor, const std::string& what) {
  GgufValue value = {.type = GgufValueType::kArray};
  ASSIGN_OR_RETURN(value.element_type, ReadValueType(cursor, what));
  ASSIGN_OR_RETURN(value.count, cursor.Read<uint64_t>(what));
  if (value.element_type == GgufValueType::kArray) {
    return absl::InvalidArgumentError(absl::StrCat(what, " is an array of arrays, which is not supported"));
  }
  const bool strings = value.element_type == GgufValueType::kString;
  const uint64_t element_bytes = strings ? sizeof(uint64_t) : ScalarBytes(value.element_type);
  if (value.count > cursor.remaining() / element_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(what, " has ", value.count,
                                                   " elements, the file has room for ",
                                                   cursor.remaining() / element_bytes));
  }
  if (!strings) {
    ASSIGN_OR_RETURN(value.bytes, cursor.Take(value.count * element_bytes, what));
    return value;
  }
  Cursor start = cursor;
  for (uint64_t i = 0; i < value.count; ++i) {
    RETURN_IF_ERROR(cursor.ReadString(what, kStringBytesMax).status());
  }
  ASSIGN_OR_RETURN(value.bytes, start.Take(cursor.offset() - start.offset(), what));
  return value;
}

absl::StatusOr<GgufValue> ReadValue(Cursor& cursor, const std::string& what) {
  ASSIGN_OR_RETURN(const GgufValueType type, ReadValueType(cursor, what));
  if (type == GgufValueType::kArray) return ReadArray(cursor, what);
  GgufValue value = {.type = type};
  if (type == GgufValueType::kString) {
    ASSIGN_OR_RETURN(value.bytes, cursor.ReadString(what, kStringBytesMax));
  } else {
    ASSIGN_OR_RETURN(value.bytes, cursor.Take(ScalarBytes(type), what));
  }
  return value;
}

absl::Status ReadMetadata(Cursor& cursor, uint64_t count, GgufMetadata& metadata) {
  for (uint64_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(const auto key_bytes,
                     cursor.ReadString(absl::StrCat("metadata key ", i), kKeyBytesMax));
    const absl::string_view key = AsText(key_bytes);
    ASSIGN_OR_RETURN(const GgufValue value,
                     ReadValue(cursor, absl::StrCat("metadata key ", Quoted(key))));
    RETURN_IF_ERROR(metadata.Add(key, value));
  }
  return absl::OkStatus();
}

// Dims in ggml's order, fastest first.
absl::Status ReadDims(Cursor& cursor, const std::string& what, GgufTensor& tensor) {
  ASSIGN_OR_RETURN(const uint32_t dim_count, cursor.Read<uint32_t>(what));
  if (dim_count < 1 || dim_count > kDimsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " has ", dim_count, " dimensions, must have 1 to ", kDimsMax));
  }
  uint64_t dims[kDimsMax] = {1, 1, 1, 1};
  uint64_t elements = 1;
  for (uint32_t i = 0; i < dim_count; ++i) {
    ASSIGN_OR_RETURN(dims[i], cursor.Read<uint64_t>(what));
    if (dims[i] == 0 || dims[i] > kElementsMax / elements) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, " has dimension ", i, " = ", dims[i],
                       ", must be at least 1 with at most ", kElementsMax, " elements in all"));
    }
    elements *= dims[i];
  }
  if (dims[2] != 1 || dims[3] != 1) {
    return absl::InvalidArgumentError(absl::StrCat(what, " has more than two dimensions: ", dims[0],
                                                   " x ", dims[1], " x ", dims[2], " x ", dims[3]));
  }
  tensor.columns = dims[0];
  tensor.rows = dims[1];
  return absl::OkStatus();
}

absl::StatusOr<GgufTensor> ReadTensor(Cursor& cursor, uint64_t index) {
  GgufTensor tensor;
  ASSIGN_OR_RETURN(const auto name, cursor.ReadString(absl::StrCat("name of tensor ", index),
                                                      kTensorNameBytesMax));
  tensor.name = AsText(name);
  const std::string what = absl::StrCat("tensor ", Quoted(tensor.name));
  RETURN_IF_ERROR(ReadDims(cursor, what, tensor));
  ASSIGN_OR_RETURN(tensor.type, cursor.Read<uint32_t>(what));
  ASSIGN_OR_RETURN(tensor.offset, cursor.Read<uint64_t>(what));
  return tensor;
}

absl::StatusOr<uint32_t> ReadAlignment(const GgufMetadata& metadata) {
  ASSIGN_OR_RETURN(const std::optional<uint32_t> alignment,
                   metadata.Uint("general.alignment", kAlignmentMin, kAlignmentMax));
  if (!alignment.has_value()) return kAlignmentDefault;
  if ((*alignment & (*alignment - 1)) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("general.alignment is ", *alignment, ", must be a power of two"));
  }
  return *alignment;
}

absl::Status CheckOffset(const GgufTensor& tensor, uint32_t alignment, uint64_t data_bytes) {
  if (tensor.offset % alignment == 0 && tensor.offset <= data_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("tensor ", Quoted(tensor.name), " has offset ", tensor.offset,
                   ", must be a multiple of ", alignment, " and at most ", data_bytes));
}

absl::Status CheckCount(const char* what, uint64_t count, uint64_t count_max) {
  if (count <= count_max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " is ", count, ", must be at most ", count_max));
}

// Calls fn with a value of the type's own C++ type; false when it is not a number.
template <typename Fn>
bool VisitInteger(GgufValueType type, const uint8_t* bytes, Fn fn) {
  switch (type) {
    case GgufValueType::kUint8: fn(Load<uint8_t>(bytes)); return true;
    case GgufValueType::kInt8: fn(Load<int8_t>(bytes)); return true;
    case GgufValueType::kUint16: fn(Load<uint16_t>(bytes)); return true;
    case GgufValueType::kInt16: fn(Load<int16_t>(bytes)); return true;
    case GgufValueType::kUint32: fn(Load<uint32_t>(bytes)); return true;
    case GgufValueType::kInt32: fn(Load<int32_t>(bytes)); return true;
    case GgufValueType::kUint64: fn(Load<uint64_t>(bytes)); return true;
    case GgufValueType::kInt64: fn(Load<int64_t>(bytes)); return true;
    default: return false;
  }
}

absl::StatusOr<uint32_t> IntegerInRange(absl::string_view key, GgufValueType type,
                                        const uint8_t* bytes, uint32_t low, uint32_t high) {
  absl::StatusOr<uint32_t> result;
  const bool integer = VisitInteger(type, bytes, [&](auto value) {
    const bool negative = std::is_signed_v<decltype(value)> && value < decltype(value){0};
    const auto magnitude = static_cast<uint64_t>(value);
    if (!negative && magnitude >= low && magnitude <= high) {
      result = static_cast<uint32_t>(magnitude);
    } else {
      result = absl::InvalidArgumentError(absl::StrCat(
          key, " is ", static_cast<int64_t>(value), ", must be in [", low, ", ", high, "]"));
    }
  });
  if (!integer) {
    return absl::InvalidArgumentError(absl::StrCat(
        key, " has value type ", static_cast<uint32_t>(type), ", must be an integer"));
  }
  return result;
}

absl::Status WrongType(absl::string_view key, const GgufValue& value, const char* legal) {
  return absl::InvalidArgumentError(absl::StrCat(key, " has value type ",
                                                 static_cast<uint32_t>(value.type), ", must be ",
                                                 legal));
}

}  // namespace

const GgufValue* GgufMetadata::Find(absl::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

absl::Status GgufMetadata::Add(absl::string_view key, const GgufValue& value) {
  if (values_.emplace(key, value).second) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("metadata key ", Quoted(key), " occurs twice"));
}

absl::StatusOr<std::optional<uint32_t>> GgufMetadata::Uint(absl::string_view key, uint32_t low,
                                                           uint32_t high) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::nullopt;
  ASSIGN_OR_RETURN(const uint32_t number,
                   IntegerInRange(key, value->type, value->bytes.data(), low, high));
  return number;
}

absl::StatusOr<std::optional<float>> GgufMetadata::Float(absl::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::nullopt;
  float number = 0;
  if (value->type == GgufValueType::kFloat32) {
    number = Load<float>(value->bytes.data());
  } else if (value->type == GgufValueType::kFloat64) {
    number = static_cast<float>(Load<double>(value->bytes.data()));
  } else {
    return WrongType(key, *value, "a float");
  }
  if (!std::isfinite(number)) {
    return absl::InvalidArgumentError(absl::StrCat(key, " is ", number, ", must be finite"));
  }
  return number;
}

absl::StatusOr<std::optional<bool>> GgufMetadata::Bool(absl::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufValueType::kBool) return WrongType(key, *value, "a bool");
  return value->bytes[0] != 0;
}

absl::StatusOr<std::optional<absl::string_view>> GgufMetadata::String(absl::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufValueType::kString) return WrongType(key, *value, "a string");
  return AsText(value->bytes);
}

absl::StatusOr<std::vector<absl::string_view>> GgufMetadata::Strings(absl::string_view key,
                                                                     uint64_t count_max) const {
  std::vector<absl::string_view> strings;
  const GgufValue* value = Find(key);
  if (value == nullptr) return strings;
  if (value->type != GgufValueType::kArray || value->element_type != GgufValueType::kString) {
    return WrongType(key, *value, "an array of strings");
  }
  RETURN_IF_ERROR(CheckCount(std::string(key).c_str(), value->count, count_max));
  strings.reserve(value->count);
  Cursor cursor(value->bytes);
  for (uint64_t i = 0; i < value->count; ++i) {
    ASSIGN_OR_RETURN(const auto text, cursor.ReadString(key, kStringBytesMax));
    strings.push_back(AsText(text));
  }
  return strings;
}

absl::StatusOr<std::vector<uint32_t>> GgufMetadata::Uints(absl::string_view key,
                                                          uint64_t count_max) const {
  std::vector<uint32_t> numbers;
  const GgufValue* value = Find(key);
  if (value == nullptr) return numbers;
  if (value->type != GgufValueType::kArray || value->element_type == GgufValueType::kString) {
    return WrongType(key, *value, "an array of integers");
  }
  RETURN_IF_ERROR(CheckCount(std::string(key).c_str(), value->count, count_max));
  numbers.reserve(value->count);
  const uint64_t element_bytes = ScalarBytes(value->element_type);
  for (uint64_t i = 0; i < value->count; ++i) {
    ASSIGN_OR_RETURN(const uint32_t number,
                     IntegerInRange(key, value->element_type, &value->bytes[i * element_bytes], 0,
                                    UINT32_MAX));
    numbers.push_back(number);
  }
  return numbers;
}

absl::StatusOr<GgufContainer> ParseGguf(absl::Span<const uint8_t> file) {
  Cursor cursor(file);
  ASSIGN_OR_RETURN(const auto magic, cursor.Take(4, "magic"));
  if (AsText(magic) != "GGUF") {
    return absl::InvalidArgumentError(
        absl::StrCat("the file starts with ", Quoted(AsText(magic)), ", must start with 'GGUF'"));
  }
  GgufContainer container;
  ASSIGN_OR_RETURN(container.version, cursor.Read<uint32_t>("version"));
  if (container.version < kVersionMin || container.version > kVersionMax) {
    return absl::InvalidArgumentError(absl::StrCat("GGUF version is ", container.version,
                                                   ", must be 2 or 3 (little-endian)"));
  }
  ASSIGN_OR_RETURN(const uint64_t tensor_count, cursor.Read<uint64_t>("tensor count"));
  ASSIGN_OR_RETURN(const uint64_t metadata_count, cursor.Read<uint64_t>("metadata count"));
  RETURN_IF_ERROR(CheckCount("tensor count", tensor_count, kTensorsMax));
  RETURN_IF_ERROR(CheckCount("metadata count", metadata_count, kMetadataMax));

  RETURN_IF_ERROR(ReadMetadata(cursor, metadata_count, container.metadata));
  for (uint64_t i = 0; i < tensor_count; ++i) {
    ASSIGN_OR_RETURN(GgufTensor tensor, ReadTensor(cursor, i));
    container.tensors.push_back(tensor);
  }

  ASSIGN_OR_RETURN(const uint32_t alignment, ReadAlignment(container.metadata));
  const uint64_t data_start = (cursor.offset() + alignment - 1) / alignment * alignment;
  if (data_start < file.size()) container.data = file.subspan(data_start);
  for (const GgufTensor& tensor : container.tensors) {
    RETURN_IF_ERROR(CheckOffset(tensor, alignment, container.data.size()));
  }
  return container;
}

}  // namespace baton::model
