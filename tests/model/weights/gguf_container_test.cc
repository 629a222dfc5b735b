#include "model/weights/gguf_container.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gguf_builder.h"

namespace baton::model {
namespace {

using testing::HasSubstr;

absl::Span<const uint8_t> Bytes(const std::string& text) {
  return absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(text.data()), text.size());
}

TEST(GgufContainer, ReadsValuesOfEveryType) {
  GgufBuilder builder;
  builder.Add("u8", 0, GgufBuilder::Raw(uint8_t{250}))
      .Add("i8", 1, GgufBuilder::Raw(int8_t{-2}))
      .Add("u16", 2, GgufBuilder::Raw(uint16_t{65000}))
      .Add("i16", 3, GgufBuilder::Raw(int16_t{7}))
      .Uint32("u32", 4000000000u)
      .Add("i32", 5, GgufBuilder::Raw(int32_t{5}))
      .Float("f32", 1.5f)
      .Bool("bool", true)
      .String("text", "wide")
      .Strings("texts", {"", "x", "yz"})
      .Int32s("numbers", {1, 2, 3})
      .Add("u64", 10, GgufBuilder::Raw(uint64_t{9}))
      .Add("i64", 11, GgufBuilder::Raw(int64_t{8}))
      .Add("f64", 12, GgufBuilder::Raw(2.5));
  const std::string file = builder.Build();
  const auto container = ParseGguf(Bytes(file));
  ASSERT_TRUE(container.ok()) << container.status();
  const GgufMetadata& metadata = container->metadata;
  EXPECT_EQ(**metadata.Uint("u8", 0, 255), 250);
  EXPECT_EQ(**metadata.Uint("u16", 0, 65535), 65000);
  EXPECT_EQ(**metadata.Uint("i16", 0, 10), 7);
  EXPECT_EQ(**metadata.Uint("u32", 0, UINT32_MAX), 4000000000u);
  EXPECT_EQ(**metadata.Uint("i32", 0, 10), 5);
  EXPECT_EQ(**metadata.Uint("u64", 0, 10), 9);
  EXPECT_EQ(**metadata.Uint("i64", 0, 10), 8);
  EXPECT_EQ(**metadata.Float("f32"), 1.5f);
  EXPECT_EQ(**metadata.Float("f64"), 2.5f);
  EXPECT_TRUE(**metadata.Bool("bool"));
  EXPECT_EQ(**metadata.String("text"), "wide");
  EXPECT_THAT(*metadata.Strings("texts", 3), testing::ElementsAre("", "x", "yz"));
  EXPECT_THAT(*metadata.Uints("numbers", 3), testing::ElementsAre(1, 2, 3));
  EXPECT_FALSE(metadata.Uint("absent", 0, 1)->has_value());

  EXPECT_THAT(std::string(metadata.Uint("i8", 0, 10).status().message()),
              HasSubstr("i8 is -2, must be in [0, 10]"));
  EXPECT_THAT(std::string(metadata.Uint("text", 0, 10).status().message()),
              HasSubstr("text has value type 8, must be an integer"));
  EXPECT_THAT(std::string(metadata.Float("u8").status().message()), HasSubstr("must be a float"));
  EXPECT_THAT(std::string(metadata.Strings("texts", 2).status().message()),
              HasSubstr("texts is 3, must be at most 2"));
}

struct MalformedCase {
  const char* name;
  std::string file;
  const char* want;  // Part of the message.
};

std::vector<MalformedCase> MalformedCases() {
  const auto raw32 = [](uint32_t value) { return GgufBuilder::Raw(value); };
  const auto raw64 = [](uint64_t value) { return GgufBuilder::Raw(value); };
  GgufBuilder wrong_magic, version1, big_endian, tensors, keys;
  wrong_magic.magic = "GGML";
  version1.version = 1;
  big_endian.version = 0x03000000;
  constexpr uint64_t kHuge = uint64_t{1} << 62;
  const std::string ones(64, '\1');
  std::vector<MalformedCase> cases = {
      {"Empty", "", "magic at offset 0 needs 4 bytes"},
      {"WrongMagic", wrong_magic.Build(), "starts with 'GGML'"},
      {"Version1", version1.Build(), "version is 1, must be 2 or 3"},
      {"BigEndian", big_endian.Build(), "must be 2 or 3 (little-endian)"},
      {"TensorCount", GgufBuilder().TensorCount(kHuge).Build(), "tensor count is"},
      {"MetadataCount", GgufBuilder().MetadataCount(kHuge).Build(), "metadata count is"},
      {"HeaderCutShort", GgufBuilder().Build().substr(0, 17), "metadata count at offset 16"},
      {"MetadataCutShort", GgufBuilder().MetadataCount(3).Build(), "metadata key"},
      {"GigabyteString", GgufBuilder().Add("k", 8, raw64(1 << 30)).Build(),
       "has 1073741824 bytes, must have at most"},
      {"StringPastTheEnd", GgufBuilder().Add("k", 8, raw64(1 << 20)).Build(), "needs 1048576 bytes"},
      {"StringLengthWraps", GgufBuilder().Add("k", 8, raw64(UINT64_MAX)).Build(), "must have at most"},
      {"UnknownValueType", GgufBuilder().Add("k", 13, "").Build(), "value type 13, must be in [0, 12]"},
      {"ArrayOfArrays", GgufBuilder().Add("k", 9, raw32(9) + raw64(1)).Build(), "array of arrays"},
      {"ArrayCountWraps", GgufBuilder().Add("k", 9, raw32(10) + raw64(kHuge)).Build(),
       "elements, the file has room for"},
      {"ArrayOfStringsTooMany", GgufBuilder().Add("k", 9, raw32(8) + raw64(1000)).Build(),
       "elements, the file has room for"},
      {"ArrayUnknownType", GgufBuilder().Add("k", 9, raw32(77) + raw64(1)).Build(), "value type 77"},
      {"KeyTwice", GgufBuilder().Uint32("k", 1).Uint32("k", 2).Build(), "'k' occurs twice"},
      {"NoDims", GgufBuilder().TensorAt("t", {}, 0, 0).Build(), "has 0 dimensions, must have 1 to 4"},
      {"FiveDims", GgufBuilder().TensorAt("t", {1, 1, 1, 1, 1}, 0, 0).Build(), "has 5 dimensions"},
      {"DimZero", GgufBuilder().TensorAt("t", {0}, 0, 0).Build(), "dimension 0 = 0"},
      {"DimsOverflow", GgufBuilder().TensorAt("t", {kHuge, 4}, 0, 0).Build(), "elements in all"},
      {"DimsProductOverflow", GgufBuilder().TensorAt("t", {1 << 30, 1 << 30}, 0, 0).Build(),
       "dimension 1 = 1073741824"},
      {"ThreeDims", GgufBuilder().TensorAt("t", {2, 2, 2}, 0, 0).Build(), "more than two dimensions"},
      {"Alignment2To30", GgufBuilder().Uint32("general.alignment", 1 << 30).Build(),
       "general.alignment is 1073741824, must be in [8, 65536]"},
      {"AlignmentZero", GgufBuilder().Uint32("general.alignment", 0).Build(), "general.alignment is 0"},
      {"AlignmentNoPowerOfTwo", GgufBuilder().Uint32("general.alignment", 24).Build(),
       "must be a power of two"},
      {"OffsetMisaligned", GgufBuilder().Tensor("a", {16}, 0, ones).TensorAt("t", {1}, 0, 4).Build(),
       "has offset 4, must be a multiple of 32"},
      {"OffsetPastTheEnd", GgufBuilder().Tensor("a", {16}, 0, ones).TensorAt("t", {1}, 0, 4096).Build(),
       "and at most 64"},
      {"OffsetWraps", GgufBuilder().TensorAt("t", {1}, 0, UINT64_MAX - 31).Build(), "has offset"},
      {"TensorNameTooLong", GgufBuilder().TensorAt(std::string(300, 'n'), {1}, 0, 0).Build(),
       "has 300 bytes, must have at most 256"},
  };
  return cases;
}

TEST(GgufContainer, NamesWhatIsWrong) {
  for (const MalformedCase& c : MalformedCases()) {
    const auto container = ParseGguf(Bytes(c.file));
    ASSERT_FALSE(container.ok()) << c.name;
    EXPECT_EQ(container.status().code(), absl::StatusCode::kInvalidArgument) << c.name;
    EXPECT_THAT(std::string(container.status().message()), HasSubstr(c.want)) << c.name;
  }
}

}  // namespace
}  // namespace baton::model
