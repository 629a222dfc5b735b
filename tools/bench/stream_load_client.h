// Many Generate streams at once against a router, over the callback API: the load side of stream_bench.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace baton::tools {

struct StreamLoad {
  std::string router;           // host:port
  uint32_t streams = 1;         // Started together.
  uint32_t input_tokens = 128;  // Random ids below `vocabulary_size`, others for each stream.
  uint32_t output_tokens = 64;  // Exactly: the end of sequence is ignored.
  uint32_t vocabulary_size = 0;
  uint64_t seed = 1;
};

struct StreamTimes {
  absl::Duration first_token;          // From the start of the call, on the client's clock.
  absl::Duration total;
  std::vector<absl::Duration> gaps;    // Between messages.
  uint32_t tokens = 0;
};

// Runs the load to its end. The first error of any stream.
absl::StatusOr<std::vector<StreamTimes>> RunStreams(const StreamLoad& load);

// Of the only model served.
absl::StatusOr<uint32_t> VocabularySize(const std::string& router);

}  // namespace baton::tools
