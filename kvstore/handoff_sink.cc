#include "kvstore/handoff_sink.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "kvstore/block_hash.h"

namespace baton::kvstore {
namespace {

absl::Status FromAbort(const absl::Status& reason) {
  if (!reason.ok()) return reason;
  return absl::CancelledError("the answer ended at its first token");
}

}  // namespace

HandoffSink::HandoffSink(const HandoffSinkOptions& options, KvBlockPool& pool)
    : options_(options), pool_(pool) {
  CHECK(options.layers > 0 && options.block_tokens > 0 && options.layer_block_bytes > 0);
}

HandoffSink::~HandoffSink() { CHECK(handoffs_.empty()) << handoffs_.size() << " are left"; }

void HandoffSink::Expect(const HandoffKey& key, ExpectedHandoff expected, absl::Time now) {
  CHECK(!handoffs_.contains(key)) << "hand-off " << key << " was expected twice";
  const auto block_count = static_cast<uint32_t>(
      (expected.tokens.size() + options_.block_tokens - 1) / options_.block_tokens);
  CHECK(block_count > 0) << "hand-off " << key << " of no tokens";
  CHECK_LE(block_count, expected.blocks_reserved) << "hand-off " << key << " has too few blocks";
  const auto at = handoffs_.emplace(key, Handoff{}).first;
  Handoff& handoff = at->second;
  handoff.expected = std::move(expected);
  handoff.serial = next_serial_++;
  handoff.blocks.resize(block_count);
  handoff.bound.resize(block_count, false);
  handoff.covered.resize(size_t{options_.layers} * block_count, false);
  handoff.last_progress = now;

  const auto early = early_.find(key);
  if (early == early_.end()) return;
  const Early offer = std::move(early->second);
  early_.erase(early);
  if (offer.aborted.has_value()) {
    Fail(at, FromAbort(*offer.aborted));
  } else {
    Accept(at, offer.link, offer.tokens, now);
  }
}

bool HandoffSink::Cancel(const HandoffKey& key) {
  const auto at = handoffs_.find(key);
  if (at == handoffs_.end()) return false;
  if (at->second.link.has_value()) {
    Refuse(*at->second.link, key, absl::CancelledError("the decode worker cancelled"));
  }
  Drop(at);
  return true;
}

void HandoffSink::OnLinkUp(LinkId link, const base::Id128& incarnation, RangeDelivery delivery,
                           absl::Time now) {
  const auto same = [&](const auto& entry) { return entry.second.incarnation == incarnation; };
  const auto old = std::find_if(links_.begin(), links_.end(), same);
  if (old != links_.end()) {
    const LinkId old_link = old->first;
    const absl::Status replaced = absl::UnavailableError("a newer link took this one's place");
    actions_.push_back(CloseLink{old_link, replaced});
    // The new link is known before the old one is lost, so that what was not offered yet goes on waiting.
    links_.emplace(link, Link{incarnation, delivery, now});
    OnLinkLost(old_link, replaced);
    return;
  }
  links_.emplace(link, Link{incarnation, delivery, now});
}

void HandoffSink::OnLinkLost(LinkId link, const absl::Status& status) {
  const auto lost = links_.find(link);
  if (lost == links_.end()) return;
  const base::Id128 incarnation = lost->second.incarnation;
  links_.erase(lost);
  std::erase_if(early_, [&](const auto& entry) { return entry.second.link == link; });
  const bool replaced = std::any_of(links_.begin(), links_.end(), [&](const auto& entry) {
    return entry.second.incarnation == incarnation;
  });
  for (auto at = handoffs_.begin(); at != handoffs_.end();) {
    const auto here = at++;
    const Handoff& handoff = here->second;
    const bool of_peer = handoff.expected.prefill_incarnation == incarnation;
    if (handoff.link == link || (!handoff.link.has_value() && of_peer && !replaced)) {
      Fail(here, status);
    }
  }
}

void HandoffSink::OnMessage(LinkId link, const SourceMessage& message, absl::Time now) {
  const auto from = links_.find(link);
  if (from == links_.end()) return;
  from->second.last_heard = now;
  std::visit([&](const auto& typed) { Handle(link, typed, now); }, message);
}

void HandoffSink::Handle(LinkId link, const OfferHandoff& offer, absl::Time now) {
  const auto at = handoffs_.find(offer.key);
  if (at != handoffs_.end()) {
    Accept(at, link, offer.tokens, now);
  } else if (ended_.contains(offer.key)) {
    Refuse(link, offer.key, absl::CancelledError("the hand-off has ended"));
  } else {
    HoldEarly(link, offer.key,
              {.link = link, .tokens = offer.tokens, .expires = now + options_.early_offer_hold});
  }
}

void HandoffSink::HoldEarly(LinkId link, const HandoffKey& key, Early early) {
  if (early_.contains(key)) return;
  if (early_.size() >= options_.early_offers_max) {
    if (!early.aborted.has_value()) {
      Refuse(link, key, absl::NotFoundError("too many offers came before their reservations"));
    }
    return;
  }
  early_.emplace(key, std::move(early));
}

void HandoffSink::Decline(const HandoffKey& key) {
  if (handoffs_.contains(key)) return;
  RememberEnded(key);
  const auto early = early_.find(key);
  if (early == early_.end()) return;
  if (!early->second.aborted.has_value()) {
    Refuse(early->second.link, key, absl::CancelledError("the decode worker does not want it"));
  }
  early_.erase(early);
}

void HandoffSink::Accept(Table::iterator at, LinkId link, uint32_t tokens, absl::Time now) {
  Handoff& handoff = at->second;
  const auto from = links_.find(link);
  if (from == links_.end()) return;
  if (from->second.incarnation != handoff.expected.prefill_incarnation) {
    Refuse(link, at->first, absl::NotFoundError("the hand-off is expected from another worker"));
    return;
  }
  if (handoff.link.has_value()) return;  // Offered before.
  handoff.link = link;
  handoff.last_progress = now;
  if (tokens != handoff.expected.tokens.size()) {
    FailAndTell(at, absl::InvalidArgumentError(
                        absl::StrCat("offered are ", tokens, " tokens, expected were ",
                                     handoff.expected.tokens.size())));
    return;
  }
  Send(link, AcceptHandoff{at->first});
}

HandoffSink::Table::iterator HandoffSink::FindAccepted(LinkId link, const HandoffKey& key) {
  const auto at = handoffs_.find(key);
  if (at != handoffs_.end() && at->second.link == link) return at;
  Refuse(link, key, absl::NotFoundError("no such hand-off was accepted on this link"));
  return handoffs_.end();
}

void HandoffSink::Handle(LinkId link, const AnnounceRange& announce, absl::Time now) {
  const auto at = FindAccepted(link, announce.key);
  if (at == handoffs_.end()) return;
  Handoff& handoff = at->second;
  const Range shape = {.layer = announce.layer,
                       .first_block = announce.first_block,
                       .block_count = static_cast<uint32_t>(announce.blocks.size())};
  const absl::StatusOr<Range*> range = RangeAt(handoff, announce.range_index, shape);
  if (!range.ok()) {
    FailAndTell(at, range.status());
    return;
  }
  if ((*range)->announced.has_value()) return;  // Said twice.
  (*range)->announced = announce;
  handoff.last_progress = now;
  FetchIfHere(announce.key, handoff, announce.range_index, **range);
}

void HandoffSink::Handle(LinkId link, const SealHandoff& seal, absl::Time now) {
  const auto at = FindAccepted(link, seal.key);
  if (at == handoffs_.end() || at->second.seal.has_value()) return;
  Handoff& handoff = at->second;
  if (const absl::Status status = CheckSeal(handoff, seal); !status.ok()) {
    FailAndTell(at, status);
    return;
  }
  handoff.seal = seal;
  handoff.sealed_at = now;
  handoff.last_progress = now;
  CompleteIfDone(at, now);
}

void HandoffSink::Handle(LinkId link, const AbortHandoff& abort, absl::Time now) {
  const auto at = handoffs_.find(abort.key);
  if (at == handoffs_.end()) {
    const auto early = early_.find(abort.key);
    if (early != early_.end() && early->second.link == link) early_.erase(early);
    if (ended_.contains(abort.key)) return;
    HoldEarly(link, abort.key,
              {.link = link, .aborted = abort.reason, .expires = now + options_.early_offer_hold});
    return;
  }
  const Handoff& handoff = at->second;
  const bool from_its_source =
      handoff.link.has_value()
          ? handoff.link == link
          : links_.at(link).incarnation == handoff.expected.prefill_incarnation;
  if (from_its_source) Fail(at, FromAbort(abort.reason));
}

std::optional<std::vector<KvBlockId>> HandoffSink::OnBytes(LinkId link, const PushedBytes& pushed,
                                                           absl::Time now) {
  const auto from = links_.find(link);
  if (from == links_.end()) return std::nullopt;
  from->second.last_heard = now;
  const auto at = handoffs_.find(pushed.key);
  if (at == handoffs_.end() || at->second.link != link) return std::nullopt;  // Late.
  Handoff& handoff = at->second;
  const Range shape = {.layer = pushed.layer,
                       .first_block = pushed.first_block,
                       .block_count = pushed.block_count};
  absl::StatusOr<Range*> range = RangeAt(handoff, pushed.range_index, shape);
  absl::Status status = range.status();
  if (status.ok()) status = CheckPushed(handoff, pushed);
  if (!status.ok()) {
    FailAndTell(at, status);
    return std::nullopt;
  }
  handoff.last_progress = now;
  return Bind(handoff, **range);
}

void HandoffSink::OnBytesPlaced(const PushedBytes& pushed, absl::Time now) {
  const auto at = handoffs_.find(pushed.key);
  if (at == handoffs_.end()) return;
  Range& range = at->second.ranges.at(pushed.range_index);
  range.bytes_placed += pushed.bytes;
  at->second.last_progress = now;
  FetchIfHere(pushed.key, at->second, pushed.range_index, range);
}

std::optional<RangeFetch> HandoffSink::NextFetch() {
  while (!fetches_.empty()) {
    const FetchDue due = fetches_.front();
    fetches_.pop_front();
    const auto at = handoffs_.find(due.key);
    if (at == handoffs_.end() || at->second.serial != due.serial) continue;
    Handoff& handoff = at->second;
    const Range& range = handoff.ranges.at(due.range_index);
    return RangeFetch{.link = *handoff.link,
                      .delivery = links_.at(*handoff.link).delivery,
                      .range = *range.announced,
                      .destination = Bind(handoff, range),
                      .serial = due.serial};
  }
  return std::nullopt;
}

void HandoffSink::OnRangeFetched(const RangeFetch& fetch, const absl::Status& status,
                                 absl::Time now) {
  const HandoffKey& key = fetch.range.key;
  const auto at = handoffs_.find(key);
  if (at == handoffs_.end() || at->second.serial != fetch.serial) return;
  if (!status.ok()) {
    FailAndTell(at, status);
    return;
  }
  Handoff& handoff = at->second;
  Range& range = handoff.ranges.at(fetch.range.range_index);
  CHECK(!range.done) << "range " << fetch.range.range_index << " was fetched twice";
  range.done = true;
  ++handoff.ranges_done;
  handoff.last_progress = now;
  Send(fetch.link, AcknowledgeRange{key, fetch.range.range_index});
  CompleteIfDone(at, now);
}

void HandoffSink::Tick(absl::Time now) {
  for (auto at = links_.begin(); at != links_.end();) {
    const auto [link, state] = *at++;
    if (now < state.last_heard + options_.no_progress_timeout) continue;
    const absl::Status silent = absl::UnavailableError(absl::StrCat(
        "nothing was heard from the prefill worker for ",
        absl::FormatDuration(now - state.last_heard)));
    actions_.push_back(CloseLink{link, silent});
    OnLinkLost(link, silent);
  }
  for (auto at = early_.begin(); at != early_.end();) {
    const auto here = at++;
    if (now < here->second.expires) continue;
    if (!here->second.aborted.has_value()) {
      Refuse(here->second.link, here->first, absl::NotFoundError("there is no reservation"));
    }
    early_.erase(here);
  }
  for (auto at = handoffs_.begin(); at != handoffs_.end();) {
    const auto here = at++;
    const Handoff& handoff = here->second;
    if (now < DeadlineOf(handoff)) continue;
    if (now >= handoff.expected.deadline) {
      FailAndTell(here, absl::DeadlineExceededError("the request's deadline passed"));
    } else if (!handoff.link.has_value()) {
      FailAndTell(here, absl::UnavailableError(absl::StrCat(
                            "the prefill worker offered nothing for ",
                            absl::FormatDuration(now - handoff.last_progress))));
    } else {
      FailAndTell(here, absl::UnavailableError(absl::StrCat(
                            "the hand-off did not move for ",
                            absl::FormatDuration(now - handoff.last_progress), ", ",
                            handoff.ranges_owed, " ranges are incomplete")));
    }
  }
}

absl::Time HandoffSink::NextDeadline() const {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [id, link] : links_) {
    next = std::min(next, link.last_heard + options_.no_progress_timeout);
  }
  for (const auto& [key, early] : early_) next = std::min(next, early.expires);
  for (const auto& [key, handoff] : handoffs_) next = std::min(next, DeadlineOf(handoff));
  return next;
}

void HandoffSink::Shutdown(const absl::Status& status) {
  while (!handoffs_.empty()) FailAndTell(handoffs_.begin(), status);
  early_.clear();
}

std::vector<SinkAction> HandoffSink::TakeActions() { return std::exchange(actions_, {}); }

void HandoffSink::Send(LinkId link, SinkMessage message) {
  actions_.push_back(SendToSource{link, std::move(message)});
}

void HandoffSink::Refuse(LinkId link, const HandoffKey& key, const absl::Status& reason) {
  Send(link, RefuseHandoff{key, reason});
}

absl::StatusOr<HandoffSink::Range*> HandoffSink::RangeAt(Handoff& handoff, uint32_t range_index,
                                                         const Range& shape) {
  const auto known = handoff.ranges.find(range_index);
  if (known != handoff.ranges.end()) {
    Range& range = known->second;
    if (range.layer != shape.layer || range.first_block != shape.first_block ||
        range.block_count != shape.block_count) {
      return absl::InvalidArgumentError(
          absl::StrCat("range ", range_index, " was layer ", range.layer, ", blocks ",
                       range.first_block, " + ", range.block_count, " and is now layer ",
                       shape.layer, ", blocks ", shape.first_block, " + ", shape.block_count));
    }
    return &range;
  }
  RETURN_IF_ERROR(CheckShape(handoff, range_index, shape));
  const size_t begin = size_t{shape.layer} * handoff.blocks.size() + shape.first_block;
  std::fill_n(handoff.covered.begin() + static_cast<ptrdiff_t>(begin), shape.block_count, true);
  ++handoff.ranges_owed;
  return &handoff.ranges.emplace(range_index, shape).first->second;
}

absl::Status HandoffSink::CheckShape(const Handoff& handoff, uint32_t range_index,
                                     const Range& shape) const {
  const size_t blocks = handoff.blocks.size();
  if (shape.layer >= options_.layers) {
    return absl::InvalidArgumentError(absl::StrCat("range ", range_index, ": layer is ", shape.layer,
                                                   ", must be below ", options_.layers));
  }
  if (shape.block_count == 0 || uint64_t{shape.first_block} + shape.block_count > blocks) {
    return absl::InvalidArgumentError(
        absl::StrCat("range ", range_index, ": blocks are ", shape.first_block, " + ",
                     shape.block_count, ", the prompt has ", blocks));
  }
  if (handoff.seal.has_value() && range_index >= handoff.seal->range_count) {
    return absl::InvalidArgumentError(absl::StrCat("range index is ", range_index,
                                                   ", sealed were ", handoff.seal->range_count));
  }
  const size_t begin = shape.layer * blocks + shape.first_block;
  for (size_t i = begin; i < begin + shape.block_count; ++i) {
    if (!handoff.covered[i]) continue;
    return absl::InvalidArgumentError(absl::StrCat("range ", range_index, ": block ", i % blocks,
                                                   " of layer ", shape.layer,
                                                   " was in another range"));
  }
  return absl::OkStatus();
}

absl::Status HandoffSink::CheckPushed(const Handoff& handoff, const PushedBytes& pushed) const {
  if (links_.at(*handoff.link).delivery != RangeDelivery::kPushed) {
    return absl::InvalidArgumentError("bytes were pushed on a link without pushing");
  }
  const uint64_t placed = handoff.ranges.at(pushed.range_index).bytes_placed;
  const uint64_t range_bytes = pushed.block_count * options_.layer_block_bytes;
  if (pushed.offset != placed) {
    return absl::InvalidArgumentError(absl::StrCat("range ", pushed.range_index, ": offset is ",
                                                   pushed.offset, ", must be ", placed));
  }
  if (pushed.bytes == 0 || pushed.bytes > range_bytes - placed) {
    return absl::InvalidArgumentError(absl::StrCat("range ", pushed.range_index, ": ", pushed.bytes,
                                                   " bytes at ", placed, ", the range has ",
                                                   range_bytes));
  }
  return absl::OkStatus();
}

absl::Status HandoffSink::CheckSeal(const Handoff& handoff, const SealHandoff& seal) const {
  const std::vector<uint32_t>& tokens = handoff.expected.tokens;
  if (seal.info.tokens != tokens.size()) {
    return absl::InvalidArgumentError(absl::StrCat("sealed are ", seal.info.tokens,
                                                   " tokens, expected were ", tokens.size()));
  }
  if (!handoff.ranges.empty() && handoff.ranges.rbegin()->first >= seal.range_count) {
    return absl::InvalidArgumentError(absl::StrCat("sealed are ", seal.range_count,
                                                   " ranges, range ",
                                                   handoff.ranges.rbegin()->first, " came"));
  }
  if (seal.range_count == 0 || seal.range_count > handoff.covered.size()) {
    return absl::InvalidArgumentError(absl::StrCat("range_count is ", seal.range_count,
                                                   ", must be in [1, ", handoff.covered.size(),
                                                   "]"));
  }
  const std::vector<std::string> digests =
      BlockDigests(tokens, options_.block_tokens, handoff.expected.digest_extras);
  const std::string ours = digests.empty() ? "" : digests.back();
  if (seal.info.last_block_digest != ours) {
    return absl::DataLossError("the digest of the last full block is not ours: the two workers "
                               "mean different tokens, model or adapter");
  }
  return absl::OkStatus();
}

std::vector<KvBlockId> HandoffSink::Bind(Handoff& handoff, const Range& range) {
  const uint32_t end = range.first_block + range.block_count;
  for (uint32_t block = range.first_block; block < end; ++block) {
    if (handoff.bound[block]) continue;
    pool_.AllocateReserved({&handoff.blocks[block], 1});
    handoff.bound[block] = true;
    ++handoff.bound_count;
  }
  return {handoff.blocks.begin() + range.first_block, handoff.blocks.begin() + end};
}

bool HandoffSink::IsHere(const Handoff& handoff, const Range& range) const {
  if (!range.announced.has_value()) return false;
  if (links_.at(*handoff.link).delivery == RangeDelivery::kCopied) return true;
  return range.bytes_placed == range.block_count * options_.layer_block_bytes;
}

void HandoffSink::FetchIfHere(const HandoffKey& key, Handoff& handoff, uint32_t range_index,
                              Range& range) {
  if (!IsHere(handoff, range)) return;
  --handoff.ranges_owed;
  fetches_.push_back({key, handoff.serial, range_index});
}

void HandoffSink::CompleteIfDone(Table::iterator at, absl::Time now) {
  auto& [key, handoff] = *at;
  if (!handoff.seal.has_value() || handoff.ranges_done < handoff.seal->range_count) return;
  const auto missing = std::count(handoff.covered.begin(), handoff.covered.end(), false);
  if (missing > 0) {
    FailAndTell(at, absl::InvalidArgumentError(absl::StrCat(
                        "sealed with ", missing, " of ", handoff.covered.size(),
                        " (layer, block) pairs never announced")));
    return;
  }
  CHECK_EQ(handoff.bound_count, handoff.blocks.size());
  Send(*handoff.link, CompleteHandoff{key});
  actions_.push_back(HandoffReady{
      key, ReceivedHandoff{.blocks = std::move(handoff.blocks),
                           .reserved_left = handoff.expected.blocks_reserved - handoff.bound_count,
                           .seal = std::move(handoff.seal->info),
                           .seal_to_complete = now - handoff.sealed_at}});
  RememberEnded(key);
  handoffs_.erase(at);
}

bool HandoffSink::SourceOwes(const Handoff& handoff) const {
  if (!handoff.link.has_value()) return false;
  return handoff.ranges_owed > 0 ||
         (handoff.seal.has_value() && handoff.ranges.size() < handoff.seal->range_count);
}

absl::Time HandoffSink::DeadlineOf(const Handoff& handoff) const {
  const absl::Time deadline = handoff.expected.deadline;
  if (!handoff.link.has_value()) {
    return std::min(deadline, handoff.last_progress + options_.offer_timeout);
  }
  if (!SourceOwes(handoff)) return deadline;
  return std::min(deadline, handoff.last_progress + options_.no_progress_timeout);
}

void HandoffSink::FailAndTell(Table::iterator at, const absl::Status& status) {
  if (at->second.link.has_value()) Refuse(*at->second.link, at->first, status);
  Fail(at, status);
}

void HandoffSink::Fail(Table::iterator at, const absl::Status& status) {
  actions_.push_back(HandoffFailed{at->first, status});
  Drop(at);
}

void HandoffSink::Drop(Table::iterator at) {
  const Handoff& handoff = at->second;
  for (size_t block = 0; block < handoff.blocks.size(); ++block) {
    if (handoff.bound[block]) pool_.Release(handoff.blocks[block]);
  }
  pool_.Unreserve(handoff.expected.blocks_reserved - handoff.bound_count);
  RememberEnded(at->first);
  handoffs_.erase(at);
}

void HandoffSink::RememberEnded(const HandoffKey& key) {
  if (!ended_.insert(key).second) return;
  ended_in_order_.push_back(key);
  if (ended_in_order_.size() <= options_.ended_keys_max) return;
  ended_.erase(ended_in_order_.front());
  ended_in_order_.pop_front();
}

}  // namespace baton::kvstore
