// A request as an engine takes it: checked, tokens only. Made from the wire by event_codec.h, so that nothing behind it
// needs to ask again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/id128.h"
#include "model/sampling/sampling.h"
#include "runner/runner.h"
#include "worker/attempt_key.h"

namespace baton::worker {

// Bounds of one request, beside those of the model and the context.
inline constexpr uint32_t kStopTokenIdsMax = 128;      // 64 of the client's, and the model's own.
inline constexpr uint32_t kSampleIndexMax = 127;
inline constexpr uint32_t kCacheSaltBytesMax = 256;
// An answer's prompt log-probabilities travel in one message of 16 MiB at most: 14 bytes an entry.
inline constexpr uint64_t kPromptLogprobEntriesMax = 800'000;

// What a request must fit.
struct RequestLimits {
  uint32_t vocabulary_size = 0;
  uint32_t context_tokens = 0;  // Prompt and output together.
};

struct EngineRequest {
  AttemptKey key;
  base::Id128 router;                    // Whose request it is: events go there.
  std::vector<uint32_t> tokens;          // Prompt, and output so far from output_start on.
  uint32_t output_start = 0;             // [1, tokens.size()]
  uint32_t max_tokens = 0;               // Output tokens in all; output_start + max_tokens <= context.
  model::SamplingParams sampling;
  std::vector<uint32_t> stop_token_ids;
  std::optional<uint32_t> prompt_logprobs;
  absl::Duration time_left = absl::InfiniteDuration();
  std::string cache_salt;

  // Output tokens still to be drawn, >= 1.
  uint32_t remaining_tokens() const {
    return max_tokens - (static_cast<uint32_t>(tokens.size()) - output_start);
  }
  // Output position of the next token.
  uint32_t next_position() const { return static_cast<uint32_t>(tokens.size()) - output_start; }
};

// The runner's form of it; takes tokens, sampling and stop ids out of `request`.
inline runner::SequenceRequest TakeSequenceRequest(EngineRequest& request, runner::SequenceId id) {
  return {.id = id,
          .tokens = std::move(request.tokens),
          .output_start = request.output_start,
          .max_tokens = request.max_tokens,
          .sampling = std::move(request.sampling),
          .stop_token_ids = std::move(request.stop_token_ids),
          .prompt_logprobs = request.prompt_logprobs};
}

}  // namespace baton::worker
