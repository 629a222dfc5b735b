#include "kvstore/transfer/range_frame.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace baton::kvstore {
namespace {

constexpr absl::string_view kMagic = "BKV1";

template <typename T>
char* PutNumber(T value, char* to) {
  for (size_t i = 0; i < sizeof value; ++i) *to++ = static_cast<char>(value >> (8 * i));
  return to;
}

char* PutBytes(absl::string_view bytes, char* to) {
  return std::copy(bytes.begin(), bytes.end(), to);
}

template <typename T>
T TakeNumber(absl::string_view& from) {
  T value = 0;
  for (size_t i = 0; i < sizeof value; ++i) value |= T{static_cast<uint8_t>(from[i])} << (8 * i);
  from.remove_prefix(sizeof value);
  return value;
}

base::Id128 TakeId(absl::string_view& from) {
  const base::Id128 id = *base::Id128::FromBytes(from.substr(0, 16));
  from.remove_prefix(16);
  return id;
}

}  // namespace

std::array<char, kFrameHeaderBytes> EncodeFrameHeader(const RangeFrame& frame) {
  std::array<char, kFrameHeaderBytes> header;
  const PushedBytes& pushed = frame.pushed;
  char* to = PutBytes(kMagic, header.data());
  to = PutBytes(frame.link_id.ToBytes(), to);
  to = PutBytes(pushed.key.request_id.ToBytes(), to);
  to = PutNumber(pushed.key.attempt, to);
  to = PutNumber(pushed.range_index, to);
  to = PutNumber(pushed.layer, to);
  to = PutNumber(pushed.first_block, to);
  to = PutNumber(pushed.block_count, to);
  to = PutNumber(pushed.offset, to);
  CHECK(to == header.data() + header.size());
  return header;
}

absl::StatusOr<RangeFrame> DecodeFrameHeader(absl::string_view header, size_t payload_bytes) {
  CHECK_EQ(header.size(), kFrameHeaderBytes);
  if (header.substr(0, kMagic.size()) != kMagic) {
    return absl::DataLossError("a frame does not begin with its magic");
  }
  if (payload_bytes == 0 || payload_bytes > kFramePayloadBytesMax) {
    return absl::DataLossError(absl::StrCat("a frame carries ", payload_bytes,
                                            " bytes, must be in [1, ", kFramePayloadBytesMax, "]"));
  }
  header.remove_prefix(kMagic.size());
  RangeFrame frame;
  frame.link_id = TakeId(header);
  PushedBytes& pushed = frame.pushed;
  pushed.key.request_id = TakeId(header);
  pushed.key.attempt = TakeNumber<uint32_t>(header);
  pushed.range_index = TakeNumber<uint32_t>(header);
  pushed.layer = TakeNumber<uint32_t>(header);
  pushed.first_block = TakeNumber<uint32_t>(header);
  pushed.block_count = TakeNumber<uint32_t>(header);
  pushed.offset = TakeNumber<uint64_t>(header);
  pushed.bytes = payload_bytes;
  return frame;
}

}  // namespace baton::kvstore
