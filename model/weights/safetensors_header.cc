#include "model/weights/safetensors_header.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "nlohmann/json.hpp"

namespace baton::model {
namespace {

// The format allows 100 MB; headers in use have below 1 MB, and memory here is bounded by a small multiple of this.
constexpr uint64_t kHeaderBytesMax = 8 << 20;
constexpr size_t kTensorsMax = 1 << 14;
constexpr size_t kNameBytesMax = 256;
constexpr size_t kShapeMax = 2;
constexpr uint64_t kElementsMax = uint64_t{1} << 40;

struct RawEntry {
  std::string name;
  std::string dtype;
  std::vector<uint64_t> shape;
  std::vector<uint64_t> offsets;
  bool has_shape = false;
};

std::string Quoted(absl::string_view name) {
  return absl::StrCat("'", absl::CHexEscape(name.substr(0, 80)), "'");
}

// Takes the header apart as it is parsed, so that no document is ever held:
//   { "__metadata__": {text: text}, name: {"dtype": text, "shape": [n…], "data_offsets": [begin, end]}, … }
class HeaderHandler final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<RawEntry> TakeEntries() { return std::move(entries_); }
  const std::string& error() const { return error_; }

  bool start_object(size_t) override {
    if (depth_ == 2 || in_array_) return Fail("an object stands where none may be");
    ++depth_;
    return true;
  }
  bool end_object() override {
    if (depth_ == 2) in_metadata_ = false;
    --depth_;
    return true;
  }
  bool key(string_t& key) override {
    if (depth_ == 1) return BeginEntry(key);
    if (in_metadata_) return true;
    if (!fields_.insert(key).second) return Fail(absl::StrCat("field ", Quoted(key), " occurs twice"));
    field_ = key;
    if (field_ == "shape") entries_.back().has_shape = true;
    return true;
  }
  bool start_array(size_t) override {
    if (depth_ != 2 || in_metadata_ || in_array_ || (field_ != "shape" && field_ != "data_offsets")) {
      return Fail("an array stands where none may be");
    }
    in_array_ = true;
    return true;
  }
  bool end_array() override {
    in_array_ = false;
    return true;
  }
  bool string(string_t& value) override {
    if (depth_ == 2 && in_metadata_) return true;
    if (depth_ != 2 || in_array_ || field_ != "dtype") return Fail("a text stands where none may be");
    if (value.size() > kNameBytesMax) return Fail("the dtype is too long");
    entries_.back().dtype = value;
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (!in_array_) return Fail("a number stands where none may be");
    std::vector<uint64_t>& numbers =
        field_ == "shape" ? entries_.back().shape : entries_.back().offsets;
    if (numbers.size() == kShapeMax) return Fail(absl::StrCat(field_, " has more than two numbers"));
    numbers.push_back(value);
    return true;
  }
  bool number_integer(number_integer_t value) override {
    return Fail(absl::StrCat(field_, " has the number ", value, ", must not be negative"));
  }
  bool number_float(number_float_t, const string_t& text) override {
    return Fail(absl::StrCat(field_, " has the number ", text.substr(0, 32),
                             ", must be an integer below 2^64"));
  }
  bool null() override { return Fail("a null stands where none may be"); }
  bool boolean(bool) override { return Fail("a boolean stands where none may be"); }
  bool binary(binary_t&) override { return Fail("binary stands where none may be"); }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return Fail(absl::StrCat("it is not JSON at byte ", position));
  }

 private:
  bool BeginEntry(const std::string& name) {
    if (!names_.insert(name).second) return Fail("the name occurs twice", name);
    fields_.clear();
    field_.clear();
    in_metadata_ = name == "__metadata__";
    if (in_metadata_) return true;
    if (name.size() > kNameBytesMax) return Fail("the name is too long", name);
    if (entries_.size() == kTensorsMax) return Fail(absl::StrCat("more than ", kTensorsMax, " tensors"));
    entries_.push_back({.name = name});
    return true;
  }
  bool Fail(absl::string_view why) {
    return Fail(why, entries_.empty() || in_metadata_ ? "" : entries_.back().name);
  }
  bool Fail(absl::string_view why, absl::string_view name) {
    error_ = name.empty() ? std::string(why) : absl::StrCat("tensor ", Quoted(name), ": ", why);
    return false;
  }

  std::vector<RawEntry> entries_;
  absl::flat_hash_set<std::string> names_;   // At most kTensorsMax + 1.
  absl::flat_hash_set<std::string> fields_;  // Of the entry in hand.
  std::string field_;
  std::string error_;
  int depth_ = 0;
  bool in_metadata_ = false;
  bool in_array_ = false;
};

absl::Status Wrong(const RawEntry& entry, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("tensor ", Quoted(entry.name), " ", what));
}

absl::StatusOr<kernels::TensorType> TypeOf(const RawEntry& entry) {
  if (entry.dtype == "F32") return kernels::TensorType::kF32;
  if (entry.dtype == "F16") return kernels::TensorType::kF16;
  if (entry.dtype == "BF16") return kernels::TensorType::kBf16;
  return Wrong(entry, absl::StrCat("has dtype ", Quoted(entry.dtype), ", must be F32, F16 or BF16"));
}

absl::StatusOr<SafetensorsEntry> Resolve(const RawEntry& raw, absl::Span<const uint8_t> data) {
  SafetensorsEntry entry = {.name = raw.name};
  ASSIGN_OR_RETURN(entry.view.type, TypeOf(raw));
  if (!raw.has_shape || raw.shape.empty()) return Wrong(raw, "has no shape of one or two numbers");
  if (raw.offsets.size() != 2) return Wrong(raw, "has no data_offsets of two numbers");
  for (const uint64_t size : raw.shape) {
    if (size == 0 || size > kElementsMax) {
      return Wrong(raw, absl::StrCat("has a dimension of ", size, ", must be in [1, ", kElementsMax, "]"));
    }
  }
  entry.view.columns = raw.shape.back();
  entry.view.rows = raw.shape.size() == 2 ? raw.shape[0] : 1;
  if (entry.view.rows > kElementsMax / entry.view.columns) {
    return Wrong(raw, absl::StrCat("has more than ", kElementsMax, " elements"));
  }
  const auto [begin, end] = std::pair(raw.offsets[0], raw.offsets[1]);
  if (begin > end || end > data.size()) {
    return Wrong(raw, absl::StrCat("has data_offsets [", begin, ", ", end,
                                   "], must ascend and end at most at ", data.size()));
  }
  if (end - begin != entry.view.bytes()) {
    return Wrong(raw, absl::StrCat("has ", end - begin, " bytes, its shape and dtype need ",
                                   entry.view.bytes()));
  }
  entry.view.data = data.data() + begin;
  const auto address = reinterpret_cast<uintptr_t>(entry.view.data);
  if (address % kernels::BlockBytes(entry.view.type) != 0) {
    return Wrong(raw, absl::StrCat("begins at ", begin, ", which is not aligned to its dtype"));
  }
  return entry;
}

absl::Status CheckDisjoint(const std::vector<SafetensorsEntry>& in_order) {
  for (size_t i = 1; i < in_order.size(); ++i) {
    const SafetensorsEntry& before = in_order[i - 1];
    if (in_order[i].view.data < before.view.data + before.view.bytes()) {
      return absl::InvalidArgumentError(absl::StrCat("tensors ", Quoted(before.name), " and ",
                                                     Quoted(in_order[i].name), " overlap"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<SafetensorsEntry>> ParseSafetensors(absl::Span<const uint8_t> file) {
  uint64_t header_bytes = 0;
  if (file.size() < sizeof(header_bytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the file has ", file.size(), " bytes, must have at least 8"));
  }
  std::memcpy(&header_bytes, file.data(), sizeof(header_bytes));
  const uint64_t header_max =
      std::min<uint64_t>(kHeaderBytesMax, file.size() - sizeof(header_bytes));
  if (header_bytes > header_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("header length is ", header_bytes, ", must be at most ", header_max));
  }
  const absl::Span<const uint8_t> header = file.subspan(sizeof(header_bytes), header_bytes);
  HeaderHandler handler;
  if (!nlohmann::json::sax_parse(header.begin(), header.end(), &handler)) {
    return absl::InvalidArgumentError(absl::StrCat("header: ", handler.error()));
  }

  const absl::Span<const uint8_t> data = file.subspan(sizeof(header_bytes) + header_bytes);
  std::vector<SafetensorsEntry> entries;
  for (const RawEntry& raw : handler.TakeEntries()) {
    ASSIGN_OR_RETURN(SafetensorsEntry entry, Resolve(raw, data));
    entries.push_back(std::move(entry));
  }
  std::sort(entries.begin(), entries.end(),
            [](const auto& a, const auto& b) { return a.view.data < b.view.data; });
  RETURN_IF_ERROR(CheckDisjoint(entries));
  return entries;
}

}  // namespace baton::model
