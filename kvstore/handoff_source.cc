#include "kvstore/handoff_source.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace baton::kvstore {

void HandoffSource::Begin(const HandoffKey& key, LinkId link, uint32_t tokens, absl::Time now) {
  CHECK(!handoffs_.contains(key)) << "hand-off " << key << " was begun twice";
  if (handoffs_.size() >= options_.handoffs_max) {
    actions_.push_back(HandoffEnded{
        key, absl::ResourceExhaustedError(absl::StrCat(
                 handoffs_.size(), " hand-offs are under way, at most ", options_.handoffs_max))});
    return;
  }
  Handoff& handoff = handoffs_[key];
  handoff.link = link;
  handoff.tokens = tokens;
  handoff.last_progress = now;
  if (links_up_.contains(link)) Offer(key, handoff, now);
}

void HandoffSource::Announce(const HandoffKey& key, uint32_t layer, uint32_t first_block,
                             absl::Span<const KvBlockRef> blocks, absl::Time now) {
  const auto at = handoffs_.find(key);
  if (at == handoffs_.end() || blocks.empty()) return;
  Handoff& handoff = at->second;
  CHECK(!handoff.seal.has_value()) << "hand-off " << key << ": announced after the seal";
  if (!WaitsForPeer(handoff)) handoff.last_progress = now;
  if (!handoff.first_announced.has_value()) handoff.first_announced = now;
  handoff.blocks = std::max(handoff.blocks, first_block + static_cast<uint32_t>(blocks.size()));
  for (size_t begin = 0; begin < blocks.size(); begin += options_.range_blocks_max) {
    const absl::Span<const KvBlockRef> part = blocks.subspan(begin, options_.range_blocks_max);
    AnnounceRange range = {.key = key,
                           .range_index = static_cast<uint32_t>(handoff.ranges.size()),
                           .layer = layer,
                           .first_block = first_block + static_cast<uint32_t>(begin),
                           .blocks = {part.begin(), part.end()}};
    handoff.ranges.push_back({.blocks = static_cast<uint32_t>(part.size())});
    ++handoff.unacknowledged;
    handoff.owed_blocks += part.size();
    if (handoff.state == State::kAccepted) {
      Send(handoff.link, std::move(range));
    } else {
      handoff.held.push_back(std::move(range));
    }
  }
}

void HandoffSource::Seal(const HandoffKey& key, SealInfo info, absl::Time now) {
  const auto at = handoffs_.find(key);
  if (at == handoffs_.end()) return;
  CHECK(!at->second.seal.has_value()) << "hand-off " << key << " was sealed twice";
  at->second.seal = std::move(info);
  SendSealIfDue(key, at->second, now);
}

void HandoffSource::Abort(const HandoffKey& key, const absl::Status& reason) {
  const auto at = handoffs_.find(key);
  if (at == handoffs_.end()) return;
  const std::string why = reason.ok() ? "the answer ended at its first token" : reason.ToString();
  EndAndTell(at, reason, absl::CancelledError(absl::StrCat("aborted: ", why)));
}

void HandoffSource::OnLinkUp(LinkId link, absl::Time now) {
  links_up_.insert(link);
  const auto [first, last] = aborts_unsent_.equal_range(link);
  for (auto abort = first; abort != last; ++abort) Send(link, std::move(abort->second));
  aborts_unsent_.erase(first, last);
  for (auto& [key, handoff] : handoffs_) {
    if (handoff.link == link) Offer(key, handoff, now);
  }
}

void HandoffSource::OnLinkLost(LinkId link, const absl::Status& status) {
  links_up_.erase(link);
  aborts_unsent_.erase(link);
  for (auto at = handoffs_.begin(); at != handoffs_.end();) {
    at = at->second.link == link ? End(at, status) : std::next(at);
  }
}

void HandoffSource::OnMessage(LinkId link, const SinkMessage& message, absl::Time now) {
  std::visit(
      [&](const auto& typed) {
        const auto at = handoffs_.find(typed.key);
        if (at == handoffs_.end() || at->second.link != link) return;
        Handle(at, typed, now);
      },
      message);
}

void HandoffSource::Handle(Table::iterator at, const AcceptHandoff&, absl::Time now) {
  auto& [key, handoff] = *at;
  if (handoff.state != State::kOffered) return;
  handoff.state = State::kAccepted;
  handoff.last_progress = now;
  for (AnnounceRange& range : handoff.held) Send(handoff.link, std::move(range));
  handoff.held.clear();
  SendSealIfDue(key, handoff, now);
}

void HandoffSource::Handle(Table::iterator at, const AcknowledgeRange& acknowledge,
                           absl::Time now) {
  Handoff& handoff = at->second;
  const uint32_t index = acknowledge.range_index;
  if (handoff.state != State::kAccepted || index >= handoff.ranges.size()) {
    const absl::Status status = absl::InternalError(
        absl::StrCat("the sink acknowledged range ", index, ", announced were ",
                     handoff.state == State::kAccepted ? handoff.ranges.size() : 0));
    EndAndTell(at, status, status);
    return;
  }
  Range& range = handoff.ranges[index];
  if (range.acknowledged) return;
  range.acknowledged = true;
  --handoff.unacknowledged;
  handoff.owed_blocks -= range.blocks;
  handoff.last_progress = now;
}

// The last acknowledgements may be behind it: the sink has everything if it saw the seal.
void HandoffSource::Handle(Table::iterator at, const CompleteHandoff&, absl::Time) {
  if (at->second.seal_sent) {
    End(at, absl::OkStatus());
    return;
  }
  const absl::Status status = absl::InternalError("the sink completed a hand-off before its seal");
  EndAndTell(at, status, status);
}

void HandoffSource::Handle(Table::iterator at, const RefuseHandoff& refuse, absl::Time) {
  End(at, refuse.reason.ok() ? absl::InternalError("the sink refused without a reason")
                             : refuse.reason);
}

void HandoffSource::Tick(absl::Time now) {
  for (auto at = handoffs_.begin(); at != handoffs_.end();) {
    const Handoff& handoff = at->second;
    if (!WaitsForPeer(handoff) || now < handoff.last_progress + options_.no_progress_timeout) {
      ++at;
      continue;
    }
    const absl::Status status = absl::UnavailableError(
        absl::StrCat("the hand-off did not move for ",
                     absl::FormatDuration(now - handoff.last_progress), ", ",
                     handoff.unacknowledged, " of ", handoff.ranges.size(),
                     " ranges are not acknowledged"));
    at = EndAndTell(at, status, status);
  }
}

absl::Time HandoffSource::NextDeadline() const {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [key, handoff] : handoffs_) {
    if (!WaitsForPeer(handoff)) continue;
    next = std::min(next, handoff.last_progress + options_.no_progress_timeout);
  }
  return next;
}

std::vector<SourceAction> HandoffSource::TakeActions() { return std::exchange(actions_, {}); }

HandoffSource::Pins HandoffSource::pins() const {
  Pins pins;
  for (const auto& [key, handoff] : handoffs_) {
    pins.blocks += handoff.blocks;
    pins.owed_layer_blocks += handoff.owed_blocks;
    if (!handoff.first_announced.has_value()) continue;
    pins.oldest = std::min(pins.oldest.value_or(absl::InfiniteFuture()), *handoff.first_announced);
  }
  return pins;
}

bool HandoffSource::WaitsForPeer(const Handoff& handoff) {
  return handoff.state != State::kAccepted || handoff.unacknowledged > 0 || handoff.seal_sent;
}

void HandoffSource::Send(LinkId link, SourceMessage message) {
  actions_.push_back(SendToSink{link, std::move(message)});
}

void HandoffSource::Offer(const HandoffKey& key, Handoff& handoff, absl::Time now) {
  handoff.state = State::kOffered;
  handoff.last_progress = now;
  Send(handoff.link, OfferHandoff{key, handoff.tokens});
}

void HandoffSource::SendSealIfDue(const HandoffKey& key, Handoff& handoff, absl::Time now) {
  if (handoff.state != State::kAccepted || !handoff.seal.has_value() || handoff.seal_sent) return;
  if (!WaitsForPeer(handoff)) handoff.last_progress = now;
  handoff.seal_sent = true;
  Send(handoff.link, SealHandoff{.key = key,
                                 .range_count = static_cast<uint32_t>(handoff.ranges.size()),
                                 .info = *handoff.seal});
}

HandoffSource::Table::iterator HandoffSource::End(Table::iterator at, const absl::Status& status) {
  actions_.push_back(HandoffEnded{at->first, status});
  return handoffs_.erase(at);
}

HandoffSource::Table::iterator HandoffSource::EndAndTell(Table::iterator at,
                                                         const absl::Status& reason,
                                                         const absl::Status& status) {
  AbortHandoff abort = {at->first, reason};
  if (at->second.state == State::kConnecting) {
    aborts_unsent_.emplace(at->second.link, std::move(abort));
  } else {
    Send(at->second.link, std::move(abort));
  }
  return End(at, status);
}

}  // namespace baton::kvstore
