#include "router/token_relay.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace baton::router {

TokenRelay::TokenRelay(const model::Tokenizer* tokenizer, const std::vector<std::string>& stops)
    : stop_matcher_(stops) {
  if (tokenizer != nullptr) detokenizer_.emplace(*tokenizer, /*keep_special=*/false);
}

absl::Status TokenRelay::Accept(const Tokens& tokens, AnswerPiece& piece) {
  if (finish_reason_ != FinishReason::kNone) return absl::OkStatus();
  if (!tokens.logprobs.empty() && tokens.logprobs.size() != tokens.ids.size()) {
    return absl::InternalError(absl::StrCat("a worker sent ", tokens.logprobs.size(),
                                            " log-probabilities for ", tokens.ids.size(),
                                            " tokens"));
  }
  if (tokens.position > next_position_) return Hold(tokens);
  Take(tokens, piece);
  while (!ahead_.empty() && ahead_.begin()->first <= next_position_) {
    const auto first = ahead_.extract(ahead_.begin());
    tokens_ahead_ -= static_cast<uint32_t>(first.mapped().ids.size());
    Take({.ids = first.mapped().ids,
          .logprobs = first.mapped().logprobs,
          .position = first.key(),
          .finish_reason = first.mapped().finish_reason},
         piece);
  }
  return absl::OkStatus();
}

absl::Status TokenRelay::Hold(const Tokens& tokens) {
  const auto [entry, inserted] = ahead_.try_emplace(tokens.position);
  if (!inserted) {
    duplicates_ += tokens.ids.size();
    return absl::OkStatus();
  }
  tokens_ahead_ += static_cast<uint32_t>(tokens.ids.size());
  if (tokens_ahead_ > kTokensAheadMax) {
    return absl::InternalError(absl::StrCat("a worker sent tokens of position ", tokens.position,
                                            " while position ", next_position_, " never came"));
  }
  entry->second.ids.assign(tokens.ids.begin(), tokens.ids.end());
  entry->second.logprobs.assign(tokens.logprobs.begin(), tokens.logprobs.end());
  entry->second.finish_reason = tokens.finish_reason;
  return absl::OkStatus();
}

void TokenRelay::Take(const Tokens& tokens, AnswerPiece& piece) {
  if (finish_reason_ != FinishReason::kNone) return;
  const uint32_t count = static_cast<uint32_t>(tokens.ids.size());
  const uint32_t known = std::min(count, next_position_ - tokens.position);
  duplicates_ += known;
  if (piece.tokens.empty()) piece.position = next_position_;
  for (uint32_t i = known; i < count; ++i) {
    piece.tokens.push_back(tokens.ids[i]);
    if (!tokens.logprobs.empty()) piece.logprobs.push_back(tokens.logprobs[i]);
    ++next_position_;
    // The token that stops an answer is counted but adds no text.
    const bool stop_token = i + 1 == count && tokens.finish_reason == FinishReason::kStop;
    if (!stop_token && AppendText(tokens.ids[i], piece.text)) {
      finish_reason_ = FinishReason::kStop;
      stopped_by_text_ = true;
      return;
    }
  }
  const bool up_to_date = tokens.position + count == next_position_;
  if (tokens.finish_reason != FinishReason::kNone && up_to_date)
    Finish(tokens.finish_reason, piece);
}

bool TokenRelay::AppendText(uint32_t token, std::string& out) {
  if (!detokenizer_.has_value()) return false;
  return stop_matcher_.Append(detokenizer_->Append(token), out);
}

void TokenRelay::Finish(FinishReason reason, AnswerPiece& piece) {
  finish_reason_ = reason;
  if (!detokenizer_.has_value()) return;
  if (stop_matcher_.Append(detokenizer_->Flush(), piece.text)) {
    finish_reason_ = FinishReason::kStop;
    return;
  }
  stop_matcher_.Flush(piece.text);
}

}  // namespace baton::router
