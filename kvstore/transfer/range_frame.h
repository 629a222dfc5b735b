// One message on PushRanges: a 64-byte header, then a piece of a range's bytes.
//
//   offset  bytes
//        0      4  magic "BKV1"
//        4     16  link id
//       20     16  request id
//       36      4  attempt
//       40      4  range index
//       44      4  layer
//       48      4  first block
//       52      4  blocks of the whole range
//       56      8  where the piece begins in the range's bytes
//       64         the piece, up to kFramePayloadBytesMax
//
// Ids are big-endian as everywhere (Id128::ToBytes), numbers little-endian. The piece's length is the message's.
#pragma once

#include <array>
#include <cstddef>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/id128.h"
#include "kvstore/handoff_sink.h"

namespace baton::kvstore {

inline constexpr size_t kFrameHeaderBytes = 64;
// Large enough that a frame's fixed cost vanishes (1.5 GB/s measured at 1 MiB), small enough that requests interleave.
inline constexpr size_t kFramePayloadBytesMax = 1 << 20;

struct RangeFrame {
  base::Id128 link_id;
  PushedBytes pushed;
};

std::array<char, kFrameHeaderBytes> EncodeFrameHeader(const RangeFrame& frame);

// `header` has kFrameHeaderBytes bytes, `payload_bytes` follow it. DATA_LOSS: it is no frame.
absl::StatusOr<RangeFrame> DecodeFrameHeader(absl::string_view header, size_t payload_bytes);

}  // namespace baton::kvstore
