// Turns the token events of one request into the pieces of one answer: in order, each token once,
// as text cut at whole characters, nothing of a stop string.
//
// Token 1 comes twice (from the prefill and from the decode worker); whichever is first wins. The
// two streams are ordered each in itself but not against each other, so an event may also be ahead
// of its turn: it waits, within a bound. Knows nothing of attempts, workers or clients:
// request_tracker does. Thread-compatible, one per request.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "model/tokenizer/tokenizer.h"
#include "router/request.h"
#include "router/stop_matcher.h"

namespace baton::router {

class TokenRelay {
 public:
  // Tokens that wait for an earlier one, at most; more is a broken worker.
  static constexpr uint32_t kTokensAheadMax = 256;

  // `tokenizer` may be null (no text) and outlives this.
  TokenRelay(const model::Tokenizer* tokenizer, const std::vector<std::string>& stops);

  struct Tokens {
    absl::Span<const uint32_t> ids;
    absl::Span<const PositionLogprobs> logprobs;  // One per id, or none.
    uint32_t position = 0;                        // Of ids[0].
    FinishReason finish_reason = FinishReason::kNone;
  };

  // Appends to `piece` what is new. INTERNAL when the worker breaks the protocol. Ignored once
  // finished.
  absl::Status Accept(const Tokens& tokens, AnswerPiece& piece);

  uint32_t tokens_relayed() const { return next_position_; }
  // Tokens that came again.
  uint64_t duplicates() const { return duplicates_; }
  // kNone while more may come.
  FinishReason finish_reason() const { return finish_reason_; }
  // A stop string was met: the workers do not know that it is over.
  bool stopped_by_text() const { return stopped_by_text_; }

 private:
  struct Ahead {
    std::vector<uint32_t> ids;
    std::vector<PositionLogprobs> logprobs;
    FinishReason finish_reason = FinishReason::kNone;
  };

  absl::Status Hold(const Tokens& tokens);
  void Take(const Tokens& tokens, AnswerPiece& piece);
  // True when the text holds a stop string.
  bool AppendText(uint32_t token, std::string& out);
  void Finish(FinishReason reason, AnswerPiece& piece);

  std::optional<model::IncrementalDetokenizer> detokenizer_;  // Absent: no tokenizer, no text.
  StopMatcher stop_matcher_;
  uint32_t next_position_ = 0;
  uint64_t duplicates_ = 0;
  FinishReason finish_reason_ = FinishReason::kNone;
  bool stopped_by_text_ = false;
  std::map<uint32_t, Ahead> ahead_;  // By position, all > next_position_.
  uint32_t tokens_ahead_ = 0;
};

}  // namespace baton::router
