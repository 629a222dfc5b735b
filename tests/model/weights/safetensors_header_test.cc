#include "model/weights/safetensors_header.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "safetensors_builder.h"

namespace baton::model {
namespace {

using testing::HasSubstr;

// 16-byte aligned, as a mapping is.
struct alignas(64) Storage {
  uint8_t bytes[4096];
};

absl::StatusOr<std::vector<SafetensorsEntry>> Parse(const std::string& file, Storage& storage) {
  EXPECT_LE(file.size(), sizeof(storage.bytes));
  std::copy(file.begin(), file.end(), storage.bytes);
  return ParseSafetensors(absl::MakeConstSpan(storage.bytes, file.size()));
}

TEST(Safetensors, ReadsTensorsOfEveryDtype) {
  Storage storage;
  const auto entries = Parse(
      SafetensorsFileBytes(R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
                           R"("b":{"shape":[3],"data_offsets":[16,22],"dtype":"BF16"},)"
                           R"("c":{"dtype":"F16","shape":[1],"data_offsets":[22,24]}})",
                           std::string(24, '\0')),
      storage);
  ASSERT_TRUE(entries.ok()) << entries.status();
  ASSERT_EQ(entries->size(), 3u);
  EXPECT_EQ((*entries)[0].name, "a");
  EXPECT_EQ((*entries)[0].view.rows, 2u);
  EXPECT_EQ((*entries)[1].view.type, kernels::TensorType::kBf16);
  EXPECT_EQ((*entries)[1].view.columns, 3u);
  EXPECT_EQ((*entries)[2].view.data - (*entries)[0].view.data, 22);
}

struct MalformedCase {
  const char* name;
  const char* header;
  const char* want;
};

// 16 bytes of tensors follow each header.
constexpr MalformedCase kCases[] = {
    {"NotJson", R"({"a":)", "not JSON"},
    {"Trailing", R"({} {})", "not JSON"},
    {"TopIsArray", R"([])", "an array stands where none may be"},
    {"TopIsNumber", R"(7)", "a number stands"},
    {"EntryIsText", R"({"a":"x"})", "a text stands"},
    {"EntryIsNull", R"({"a":null})", "a null stands"},
    {"Deep", R"({"a":{"dtype":{"x":1}}})", "an object stands"},
    {"DeepArray", R"({"a":{"shape":[[1]]}})", "an array stands"},
    {"NameTwice", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
     "tensor 'a': the name occurs twice"},
    {"FieldTwice", R"({"a":{"dtype":"F32","dtype":"F16","shape":[1],"data_offsets":[0,4]}})", "'dtype' occurs twice"},
    {"NoDtype", R"({"a":{"shape":[1],"data_offsets":[0,4]}})", "has dtype ''"},
    {"OtherDtype", R"({"a":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})", "tensor 'a' has dtype 'I64', must be F32, F16 or BF16"},
    {"NoShape", R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", "has no shape"},
    {"NoOffsets", R"({"a":{"dtype":"F32","shape":[1]}})", "has no data_offsets"},
    {"OneOffset", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", "has no data_offsets of two"},
    {"ThreeOffsets", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}})", "more than two numbers"},
    {"NegativeOffset", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}})", "must not be negative"},
    {"FractionalOffset", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0.5,4]}})", "must be an integer"},
    {"OffsetAbove2To64", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551616]}})", "must be an integer"},
    {"Reversed", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[8,4]}})", "has data_offsets [8, 4], must ascend"},
    {"PastTheEnd", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[16,20]}})", "must ascend and end at most at 16"},
    {"ShapeTimesDtype", R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", "has 8 bytes, its shape and dtype need 12"},
    {"ShapeZero", R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})", "a dimension of 0"},
    {"ShapeOverflow", R"({"a":{"dtype":"F32","shape":[1099511627776,1099511627776],"data_offsets":[0,16]}})", "more than"},
    {"ShapeHuge", R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,16]}})", "has a dimension of 18446744073709551615"},
    {"ThreeDims", R"({"a":{"dtype":"F32","shape":[1,1,1],"data_offsets":[0,4]}})", "more than two numbers"},
    {"Misaligned", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})", "not aligned"},
    {"Overlap", R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
     "tensors 'a' and 'b' overlap"},
};

TEST(Safetensors, NamesWhatIsWrong) {
  for (const MalformedCase& c : kCases) {
    Storage storage;
    const auto entries = Parse(SafetensorsFileBytes(c.header, std::string(16, '\0')), storage);
    ASSERT_FALSE(entries.ok()) << c.name;
    EXPECT_EQ(entries.status().code(), absl::StatusCode::kInvalidArgument) << c.name;
    EXPECT_THAT(std::string(entries.status().message()), HasSubstr(c.want)) << c.name;
  }
}

TEST(Safetensors, RefusesHeaderLengths) {
  for (const uint64_t length : {UINT64_MAX, UINT64_MAX - 7, uint64_t{1} << 63, uint64_t{100'000'001},
                                uint64_t{17}}) {
    std::string file(8, '\0');
    std::memcpy(file.data(), &length, 8);
    file += "{}              ";
    Storage storage;
    const auto entries = Parse(file, storage);
    ASSERT_FALSE(entries.ok()) << length;
    EXPECT_THAT(std::string(entries.status().message()),
                HasSubstr(absl::StrCat("header length is ", length, ", must be at most 16")));
  }
  Storage storage;
  EXPECT_FALSE(Parse("\1\0\0", storage).ok());
}

// The format would allow it, so the file really holds that much.
TEST(Safetensors, RefusesAHeaderOf100MillionBytes) {
  const uint64_t length = 100'000'001;
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  file.resize(8 + length, ' ');
  const auto entries = ParseSafetensors(
      absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(file.data()), file.size()));
  ASSERT_FALSE(entries.ok());
  EXPECT_THAT(std::string(entries.status().message()),
              HasSubstr("header length is 100000001, must be at most 8388608"));
}

}  // namespace
}  // namespace baton::model
