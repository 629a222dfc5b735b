// What a client asks for and what it is answered, in the router's own terms: no wire format, no
// threads.
//
// Validate() holds every rule on a request that needs no tokenizer, for all front doors alike; its
// messages name the field as protos/baton/v1 spells it, the value and the legal range.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/id128.h"

namespace baton::router {

struct ServedModel;

inline constexpr uint32_t kStopStringsMax = 16;
inline constexpr uint32_t kStopStringBytesMax = 256;
inline constexpr uint32_t kStopTokenIdsMax = 64;
inline constexpr uint32_t kLogitBiasMax = 1024;
inline constexpr uint32_t kLogprobsMax = 20;
inline constexpr uint32_t kMessagesMax = 1024;
inline constexpr uint32_t kClientIdBytesMax = 256;

struct SamplingParams {
  float temperature = 0;
  uint32_t top_k = 0;
  float top_p = 1;
  float min_p = 0;
  float repetition_penalty = 1;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  std::vector<std::pair<uint32_t, float>> logit_bias;
  std::optional<uint64_t> seed;  // Set by the router at the latest when the request is submitted.
};

struct StopConditions {
  std::optional<int64_t> max_tokens;  // Absent: as many as the context has room for.
  std::vector<std::string> stop;
  std::vector<uint32_t> stop_token_ids;
  bool ignore_eos = false;
};

struct LogprobOptions {
  std::optional<uint32_t> logprobs;
  std::optional<uint32_t> prompt_logprobs;
};

struct ChatMessage {
  std::string role;
  std::string content;
};

struct TextPrompt {
  std::string text;
  bool parse_special = false;
};
struct TokenPrompt {
  std::vector<uint32_t> ids;
};
struct ChatPrompt {
  std::vector<ChatMessage> messages;
};
using Prompt = std::variant<TextPrompt, TokenPrompt, ChatPrompt>;

struct RequestSpec {
  base::Id128 id;                 // The router's own, random.
  std::string client_request_id;  // For logs only.
  std::string model;              // Empty: the only one served.
  Prompt prompt;
  SamplingParams sampling;
  StopConditions stop_conditions;
  LogprobOptions logprob_options;
  int64_t n = 1;
  absl::Time arrival;
  absl::Time deadline = absl::InfiniteFuture();
};

// NOT_FOUND: another model. FAILED_PRECONDITION: needs a tokenizer or a template that the model
// lacks. INVALID_ARGUMENT.
absl::Status Validate(const RequestSpec& spec, const ServedModel& model, int64_t prompt_bytes_max);

// The parts of it that other calls share. `field` names the caller's field in messages.
absl::Status ValidateModelName(const std::string& name, const ServedModel& model);
absl::Status ValidatePrompt(const Prompt& prompt, const ServedModel& model,
                            int64_t prompt_bytes_max);
absl::Status ValidateTokenIds(const std::vector<uint32_t>& ids, const std::string& field,
                              uint32_t vocabulary_size);

// Output tokens to ask of the workers: `max_tokens`, or what is left of the context.
// INVALID_ARGUMENT when they and the prompt do not fit; both numbers and the limit are in the
// message.
absl::StatusOr<uint32_t> ResolveMaxTokens(uint64_t prompt_tokens, std::optional<int64_t> max_tokens,
                                          uint32_t context_tokens);

// --- The answer ---

enum class FinishReason { kNone, kStop, kLength };

struct TokenLogprob {
  uint32_t token = 0;
  float logprob = 0;
};

struct PositionLogprobs {
  std::optional<TokenLogprob> chosen;
  std::vector<TokenLogprob> top;
};

// What came since the last piece.
struct AnswerPiece {
  std::string text;
  std::vector<uint32_t> tokens;
  std::vector<PositionLogprobs> logprobs;  // One per token, or none.
  uint32_t position = 0;                   // Output position of tokens[0].
  std::vector<PositionLogprobs> prompt_logprobs;

  void Clear();  // Keeps the capacity.
};

struct Usage {
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  uint32_t completion_tokens = 0;
  uint64_t seed = 0;
};

// Where the time went; absent parts did not occur. See types.proto.
struct Timings {
  std::optional<absl::Duration> text, queue, prefill_queue, prefill, handoff, first_decode;
  std::optional<absl::Duration> time_to_first_token, total;
};

// The last words of an answer that ended well.
struct AnswerEnding {
  FinishReason finish_reason = FinishReason::kNone;
  Usage usage;
  Timings timings;
};

// Where an answer goes: a client's stream. Called by one thread at a time; never blocks. Exactly
// one Write() with an ending, or one Fail(), is the last call.
class AnswerSink {
 public:
  virtual ~AnswerSink() = default;
  // `ending` is null but for the last piece.
  virtual void Write(const AnswerPiece& piece, const AnswerEnding* ending) = 0;
  virtual void Fail(const absl::Status& status) = 0;
  // The client is gone; any thread may ask.
  virtual bool cancelled() const = 0;
};

}  // namespace baton::router
