#include "kvstore/transfer/range_frame.h"

#include <string>

#include "gtest/gtest.h"

namespace baton::kvstore {
namespace {

RangeFrame Frame() {
  return {.link_id = {.high = 1, .low = 2},
          .pushed = {.key = {.request_id = {.high = 3, .low = 4}, .attempt = 5},
                     .range_index = 6, .layer = 7, .first_block = 8, .block_count = 9,
                     .offset = uint64_t{1} << 40, .bytes = 100}};
}

TEST(RangeFrame, ComesBackAsItWas) {
  const auto header = EncodeFrameHeader(Frame());
  const auto decoded = DecodeFrameHeader({header.data(), header.size()}, 100);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  const PushedBytes& pushed = decoded->pushed;
  EXPECT_EQ(decoded->link_id, Frame().link_id);
  EXPECT_EQ(pushed.key, Frame().pushed.key);
  EXPECT_EQ(pushed.range_index, 6u);
  EXPECT_EQ(pushed.layer, 7u);
  EXPECT_EQ(pushed.first_block, 8u);
  EXPECT_EQ(pushed.block_count, 9u);
  EXPECT_EQ(pushed.offset, uint64_t{1} << 40);
  EXPECT_EQ(pushed.bytes, 100u);
}

// Two builds of Baton meet on a wire.
TEST(RangeFrame, LiesAsDocumented) {
  const auto header = EncodeFrameHeader(Frame());
  const std::string bytes(header.data(), header.size());
  EXPECT_EQ(bytes.substr(0, 4), "BKV1");
  EXPECT_EQ(bytes.substr(4, 16), Frame().link_id.ToBytes());
  EXPECT_EQ(bytes.substr(20, 16), Frame().pushed.key.request_id.ToBytes());
  EXPECT_EQ(bytes.substr(36, 20), std::string("\5\0\0\0\6\0\0\0\7\0\0\0\x8\0\0\0\x9\0\0\0", 20));
  EXPECT_EQ(bytes.substr(56), std::string("\0\0\0\0\0\1\0\0", 8));
}

TEST(RangeFrame, RefusesWhatIsNone) {
  auto header = EncodeFrameHeader(Frame());
  const absl::string_view view(header.data(), header.size());
  EXPECT_EQ(DecodeFrameHeader(view, 0).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(DecodeFrameHeader(view, kFramePayloadBytesMax + 1).status().code(),
            absl::StatusCode::kDataLoss);
  EXPECT_TRUE(DecodeFrameHeader(view, kFramePayloadBytesMax).ok());
  header[0] = 'X';
  EXPECT_EQ(DecodeFrameHeader(view, 100).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace baton::kvstore
