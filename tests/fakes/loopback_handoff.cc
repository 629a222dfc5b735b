#include "tests/fakes/loopback_handoff.h"

#include <cstring>
#include <utility>

#include "base/check.h"
#include "kvstore/block_hash.h"

namespace baton::fakes {

using kvstore::ExpectedHandoff;
using kvstore::HandoffKey;
using kvstore::HandoffPeer;
using kvstore::KvBlockId;
using kvstore::SealInfo;

LoopbackHandoff::LoopbackHandoff(const HandoffEnd& source, const HandoffEnd& sink)
    : source_(source), sink_(sink) {
  CHECK(source.kv.layout == sink.kv.layout);
}

LoopbackHandoff::~LoopbackHandoff() {
  {
    base::MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
  base::MutexLock lock(mutex_);
  for (auto& [key, handoff] : handoffs_) {
    if (handoff.expected) GiveBack(handoff);
  }
}

void LoopbackHandoff::Connect(kvstore::HandoffSenderEvents& source,
                              kvstore::HandoffReceiverEvents& sink) {
  source_events_ = &source;
  sink_events_ = &sink;
  thread_ = std::thread([this] { Run(); });
}

void LoopbackHandoff::Hold() {
  base::MutexLock lock(mutex_);
  held_ = true;
}

void LoopbackHandoff::Release() {
  base::MutexLock lock(mutex_);
  held_ = false;
  moved_ = true;
  changed_.NotifyAll();
}

void LoopbackHandoff::KillSource() {
  base::MutexLock lock(mutex_);
  source_dead_ = moved_ = true;
  changed_.NotifyAll();
}

void LoopbackHandoff::KillSink() {
  base::MutexLock lock(mutex_);
  sink_dead_ = moved_ = true;
  changed_.NotifyAll();
}

void LoopbackHandoff::FailWith(const absl::Status& status) {
  base::MutexLock lock(mutex_);
  failure_ = status;
}

size_t LoopbackHandoff::open_at_source() const {
  base::MutexLock lock(mutex_);
  size_t open = 0;
  for (const auto& [key, handoff] : handoffs_) open += handoff.begun;
  return open;
}

size_t LoopbackHandoff::open_at_sink() const {
  base::MutexLock lock(mutex_);
  size_t open = 0;
  for (const auto& [key, handoff] : handoffs_) open += handoff.expected;
  return open;
}

size_t LoopbackHandoff::sealed() const {
  base::MutexLock lock(mutex_);
  return sealed_;
}

void LoopbackHandoff::Sender::Begin(const HandoffKey& key, const HandoffPeer& peer,
                                    uint32_t tokens) {
  CHECK(!peer.address.empty());
  base::MutexLock lock(loopback_.mutex_);
  Handoff& handoff = loopback_.handoffs_[key];
  CHECK(!std::exchange(handoff.begun, true)) << key << " was begun twice";
  handoff.tokens = tokens;
  const uint32_t block_tokens = loopback_.source_.kv.layout.block_tokens;
  handoff.announced.assign(loopback_.source_.kv.layout.layers,
                           std::vector<bool>((tokens + block_tokens - 1) / block_tokens));
  loopback_.moved_ = true;
  loopback_.changed_.NotifyAll();
}

void LoopbackHandoff::Sender::Announce(const HandoffKey& key, uint32_t layer, uint32_t first_block,
                                       absl::Span<const KvBlockId> blocks) {
  base::MutexLock lock(loopback_.mutex_);
  const auto found = loopback_.handoffs_.find(key);
  if (found == loopback_.handoffs_.end() || !found->second.begun) return;
  Handoff& handoff = found->second;
  CHECK(!handoff.sealed);
  Range range{.layer = layer, .first_block = first_block, .blocks = {blocks.begin(), blocks.end()}};
  for (size_t i = 0; i < blocks.size(); ++i) {
    std::vector<bool>::reference told = handoff.announced.at(layer).at(first_block + i);
    CHECK(!told) << "block " << first_block + i << " of layer " << layer << " was announced twice";
    told = true;
    range.generations.push_back(loopback_.source_.pool->generation(blocks[i]));
  }
  handoff.ranges.push_back(std::move(range));
  loopback_.moved_ = true;
  loopback_.changed_.NotifyAll();
}

void LoopbackHandoff::Sender::Seal(const HandoffKey& key, SealInfo info) {
  base::MutexLock lock(loopback_.mutex_);
  const auto found = loopback_.handoffs_.find(key);
  if (found == loopback_.handoffs_.end() || !found->second.begun) return;
  Handoff& handoff = found->second;
  CHECK_EQ(info.tokens, handoff.tokens);
  for (const auto& layer : handoff.announced) {
    for (const bool told : layer) CHECK(told) << "sealed before all was announced";
  }
  handoff.seal = std::move(info);
  handoff.sealed = true;
  ++loopback_.sealed_;
  loopback_.moved_ = true;
  loopback_.changed_.NotifyAll();
}

void LoopbackHandoff::Sender::Abort(const HandoffKey& key, const absl::Status& reason) {
  base::MutexLock lock(loopback_.mutex_);
  const auto found = loopback_.handoffs_.find(key);
  if (found == loopback_.handoffs_.end() || !found->second.begun) return;
  found->second.aborted = true;
  found->second.abort_reason = reason;
  loopback_.moved_ = true;
  loopback_.changed_.NotifyAll();
}

void LoopbackHandoff::Receiver::Expect(const HandoffKey& key, ExpectedHandoff expected) {
  base::MutexLock lock(loopback_.mutex_);
  Handoff& handoff = loopback_.handoffs_[key];
  CHECK(!std::exchange(handoff.expected, true)) << key << " was expected twice";
  handoff.what = std::move(expected);
  loopback_.moved_ = true;
  loopback_.changed_.NotifyAll();
}

bool LoopbackHandoff::Receiver::Cancel(const HandoffKey& key) {
  base::MutexLock lock(loopback_.mutex_);
  const auto found = loopback_.handoffs_.find(key);
  if (found == loopback_.handoffs_.end() || !found->second.expected) return false;
  loopback_.GiveBack(found->second);
  loopback_.moved_ = true;
  loopback_.changed_.NotifyAll();
  return true;
}

// What was begun ends; what begins later is the source's to abort, as it is told of its cancel.
void LoopbackHandoff::Receiver::Decline(const HandoffKey& key) {
  base::MutexLock lock(loopback_.mutex_);
  const auto found = loopback_.handoffs_.find(key);
  if (found == loopback_.handoffs_.end() || found->second.expected) return;
  found->second.aborted = loopback_.moved_ = true;
  loopback_.changed_.NotifyAll();
}

void LoopbackHandoff::Run() {
  while (true) {
    std::vector<Event> events;
    {
      base::MutexLock lock(mutex_);
      while (!stopping_ && !moved_) changed_.Wait(mutex_);
      if (stopping_) return;
      moved_ = false;
      events = Advance();
    }
    for (const Event& event : events) event();
  }
}

std::vector<LoopbackHandoff::Event> LoopbackHandoff::Advance() {
  std::vector<Event> events;
  for (auto each = handoffs_.begin(); each != handoffs_.end();) {
    const HandoffKey key = each->first;
    Handoff& handoff = each->second;
    if (sink_dead_) {
      if (handoff.begun) EndSource(key, handoff, absl::UnavailableError("the sink died"), events);
    } else if (source_dead_) {
      if (handoff.expected) FailSink(key, handoff, absl::UnavailableError("the source died"), events);
    } else if (handoff.aborted && handoff.begun) {
      EndSource(key, handoff, absl::CancelledError("aborted"), events);
      if (handoff.expected) {
        const absl::Status reason = handoff.abort_reason.ok()
                                        ? absl::CancelledError("the answer ended at its first token")
                                        : handoff.abort_reason;
        FailSink(key, handoff, reason, events);
      }
    } else if (!held_ && handoff.begun && handoff.expected) {
      Copy(handoff);
      if (handoff.sealed) {
        absl::Status status = failure_;
        if (status.ok()) status = CheckSealed(handoff);
        EndSource(key, handoff, status, events);
        if (status.ok()) {
          handoff.expected = false;
          kvstore::ReceivedHandoff received{
              .blocks = std::move(handoff.blocks),
              .reserved_left = handoff.what.blocks_reserved,
              .seal = handoff.seal,
              .seal_to_complete = absl::Microseconds(1)};
          events.push_back([this, key, received = std::move(received)]() mutable {
            sink_events_->OnHandoffReady(key, std::move(received));
          });
        } else {
          FailSink(key, handoff, status, events);
        }
      }
    }
    each = handoff.begun || handoff.expected ? std::next(each) : handoffs_.erase(each);
  }
  return events;
}

void LoopbackHandoff::Copy(Handoff& handoff) {
  const kernels::PagedKvView& from = source_.kv;
  const kernels::PagedKvView& to = sink_.kv;
  for (const Range& range : handoff.ranges) {
    const size_t end = range.first_block + range.blocks.size();
    if (end > handoff.blocks.size()) {
      const size_t have = handoff.blocks.size();
      const auto more = static_cast<uint32_t>(end - have);
      CHECK_LE(more, handoff.what.blocks_reserved);
      handoff.blocks.resize(end);
      sink_.pool->AllocateReserved(absl::MakeSpan(handoff.blocks).subspan(have));
      handoff.what.blocks_reserved -= more;
    }
    for (size_t i = 0; i < range.blocks.size(); ++i) {
      const auto source_block = static_cast<uint32_t>(range.blocks[i]);
      const auto sink_block = static_cast<uint32_t>(handoff.blocks[range.first_block + i]);
      CHECK_EQ(source_.pool->generation(range.blocks[i]), range.generations[i])
          << "a block was let go of while it was announced: ";
      std::memcpy(to.LayerBlock(range.layer, sink_block), from.LayerBlock(range.layer, source_block),
                  from.layout.layer_block_bytes());
    }
  }
  handoff.ranges.clear();
}

absl::Status LoopbackHandoff::CheckSealed(const Handoff& handoff) const {
  const auto digests = kvstore::BlockDigests(
      handoff.what.tokens, source_.kv.layout.block_tokens, handoff.what.digest_extras);
  const std::string want = digests.empty() ? "" : digests.back();
  if (handoff.seal.last_block_digest == want) return absl::OkStatus();
  return absl::DataLossError("the block digests differ");
}

void LoopbackHandoff::GiveBack(Handoff& handoff) {
  sink_.pool->Release(handoff.blocks);
  handoff.blocks.clear();
  if (handoff.what.blocks_reserved > 0) sink_.pool->Unreserve(handoff.what.blocks_reserved);
  handoff.what.blocks_reserved = 0;
  handoff.expected = false;
}

void LoopbackHandoff::EndSource(const HandoffKey& key, Handoff& handoff, const absl::Status& status,
                                std::vector<Event>& events) {
  handoff.begun = false;
  handoff.ranges.clear();
  events.push_back([this, key, status] { source_events_->OnHandoffEnded(key, status); });
}

void LoopbackHandoff::FailSink(const HandoffKey& key, Handoff& handoff, const absl::Status& status,
                               std::vector<Event>& events) {
  GiveBack(handoff);
  events.push_back([this, key, status] { sink_events_->OnHandoffFailed(key, status); });
}

}  // namespace baton::fakes
