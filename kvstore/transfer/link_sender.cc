#include "kvstore/transfer/link_sender.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/grpc_server.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "kvstore/transfer/range_frame.h"

namespace baton::kvstore {
namespace {

// Peers that were lost this long ago are forgotten: their next link is dialled at once.
constexpr absl::Duration kRedialMemory = absl::Minutes(1);

// A range is about a frame long, so that hand-offs interleave and a copy can be given up soon.
uint32_t RangeBlocksMax(const kernels::KvLayout& layout) {
  return static_cast<uint32_t>(
      std::max<uint64_t>(1, kFramePayloadBytesMax / layout.layer_block_bytes()));
}

// Copies bytes [offset, offset + size) of a range into `to`.
void CopyPiece(const kernels::PagedKvView& view, const AnnounceRange& range, uint64_t offset,
               uint64_t size, uint8_t* to) {
  const uint64_t block_bytes = view.layout.layer_block_bytes();
  while (size > 0) {
    const KvBlockRef& block = range.blocks[offset / block_bytes];
    const uint64_t begin = offset % block_bytes;
    const uint64_t bytes = std::min(size, block_bytes - begin);
    std::memcpy(to, view.LayerBlock(range.layer, static_cast<uint32_t>(block.id)) + begin, bytes);
    to += bytes;
    offset += bytes;
    size -= bytes;
  }
}

grpc::ByteBuffer MakeFrame(const kernels::PagedKvView& view, const base::Id128& link_id,
                           const AnnounceRange& range, uint64_t offset, uint64_t bytes) {
  const auto header = EncodeFrameHeader(
      {.link_id = link_id,
       .pushed = {.key = range.key,
                  .range_index = range.range_index,
                  .layer = range.layer,
                  .first_block = range.first_block,
                  .block_count = static_cast<uint32_t>(range.blocks.size()),
                  .offset = offset,
                  .bytes = bytes}});
  grpc_slice raw = grpc_slice_malloc(header.size() + bytes);
  std::memcpy(GRPC_SLICE_START_PTR(raw), header.data(), header.size());
  CopyPiece(view, range, offset, bytes, GRPC_SLICE_START_PTR(raw) + header.size());
  const grpc::Slice slice(raw, grpc::Slice::STEAL_REF);
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace

absl::StatusOr<std::unique_ptr<LinkSender>> LinkSender::Create(LinkWorker worker,
                                                               const LinkSenderOptions& options,
                                                               HandoffSenderEvents& events) {
  KeepGrpcRunning();
  std::unique_ptr<LinkSender> sender(new LinkSender(std::move(worker), options, events));
  for (const TransportKind kind : options.transports) {
    if (kind == TransportKind::kLoopback && sender->worker_.loopback == nullptr) continue;
    if (kind == TransportKind::kShm) {
      ASSIGN_OR_RETURN(sender->shm_, ShmListener::Start(sender->worker_.arena));
    }
    sender->transports_.push_back(kind);
  }
  if (sender->transports_.empty()) {
    return absl::InvalidArgumentError("no transport is left to hand KV over");
  }
  if (sender->worker_.loopback != nullptr) {
    sender->worker_.loopback->Publish(sender->worker_.incarnation, sender->worker_.pool,
                                      sender->worker_.arena.view());
  }
  sender->thread_ = std::thread([raw = sender.get()] { raw->Run(); });
  return sender;
}

LinkSender::LinkSender(LinkWorker worker, const LinkSenderOptions& options,
                       HandoffSenderEvents& events)
    : worker_(std::move(worker)),
      options_(options),
      events_(events),
      source_({.no_progress_timeout = options.no_progress_timeout,
               .range_blocks_max = RangeBlocksMax(worker_.arena.view().layout),
               .handoffs_max = options.handoffs_max}) {}

LinkSender::~LinkSender() {
  if (!thread_.joinable()) return;  // Creating it failed.
  {
    base::MutexLock lock(mutex_);
    stopping_ = true;
    wake_.NotifyAll();
  }
  thread_.join();
  if (worker_.loopback != nullptr) worker_.loopback->Withdraw(worker_.incarnation);
}

void LinkSender::Begin(const HandoffKey& key, const HandoffPeer& peer, uint32_t tokens) {
  Post([this, key, peer, tokens] {
    const absl::Time now = clock_.Now();
    const LinkId link = LinkTo(peer);
    active_.emplace(key, Active{link, now});
    source_.Begin(key, link, tokens, now);
  });
}

// The generations are read here, while the caller is sure to hold the blocks.
void LinkSender::Announce(const HandoffKey& key, uint32_t layer, uint32_t first_block,
                          absl::Span<const KvBlockId> blocks) {
  std::vector<KvBlockRef> refs;
  refs.reserve(blocks.size());
  for (const KvBlockId block : blocks) refs.push_back({block, worker_.pool.generation(block)});
  Post([this, key, layer, first_block, refs = std::move(refs)] {
    source_.Announce(key, layer, first_block, refs, clock_.Now());
  });
}

void LinkSender::Seal(const HandoffKey& key, SealInfo info) {
  Post([this, key, info = std::move(info)] { source_.Seal(key, info, clock_.Now()); });
}

void LinkSender::Abort(const HandoffKey& key, const absl::Status& reason) {
  Post([this, key, reason] { source_.Abort(key, reason); });
}

HandoffSender::Pins LinkSender::pins() const {
  base::MutexLock lock(mutex_);
  Pins pins = {.owed_bytes = owed_bytes_};
  if (oldest_pin_.has_value()) pins.oldest_age = clock_.Now() - *oldest_pin_;
  return pins;
}

void LinkSender::OnHelloReply(LinkId link, const LinkHelloReply& reply) {
  Post([this, link, reply] { Greeted(link, reply); });
}

void LinkSender::OnMessage(LinkId link, const SinkMessage& message) {
  Post([this, link, message] {
    source_.OnMessage(link, message, clock_.Now());
    links_.at(link).client->ReadNext();
  });
}

void LinkSender::OnFrameWritten(LinkId) {
  Post([] {});  // The thread looks at all links when it wakes.
}

void LinkSender::OnLinkEnded(LinkId link, const absl::Status& status) {
  Post([this, link, status] { Forget(link, status); });
}

void LinkSender::Post(std::function<void()> work) {
  base::MutexLock lock(mutex_);
  inbox_.push_back(std::move(work));
  wake_.NotifyOne();
}

void LinkSender::Run() {
  std::vector<std::function<void()>> work;
  while (WaitForWork(work)) {
    for (const auto& item : work) {
      item();
      CarryOut();
    }
    source_.Tick(clock_.Now());
    CarryOut();
    TendLinks();
    CarryOut();
    PublishPins();
  }
  StopAll();
}

// False: it is time to stop, and all that was posted before is done.
bool LinkSender::WaitForWork(std::vector<std::function<void()>>& work) {
  work.clear();
  const absl::Time wake_at = NextWake();
  base::MutexLock lock(mutex_);
  while (inbox_.empty() && !stopping_) {
    const absl::Duration left = wake_at - clock_.Now();
    if (left <= absl::ZeroDuration()) break;
    wake_.WaitFor(mutex_, left);
  }
  if (inbox_.empty() && stopping_) return false;
  work.swap(inbox_);
  return true;
}

absl::Time LinkSender::NextWake() const {
  absl::Time next = source_.NextDeadline();
  for (const auto& [id, link] : links_) {
    if (link.lost) continue;
    if (link.client == nullptr) {
      next = std::min(next, link.dial_at);
    } else if (link.transport.has_value()) {
      next = std::min(next, link.heartbeat_at);
    } else {
      next = std::min(next, link.dialled_at + options_.no_progress_timeout);
    }
  }
  return next;
}

void LinkSender::StopAll() {
  while (!active_.empty()) {
    const HandoffKey key = active_.begin()->first;
    source_.Abort(key, absl::UnavailableError("the prefill worker stops"));
    CarryOut();
    CHECK(!active_.contains(key)) << key;
  }
  for (auto& [id, link] : links_) {
    if (!link.lost) Lose(id, link, absl::CancelledError("the prefill worker stops"));
  }
  std::erase_if(links_, [](const auto& entry) { return entry.second.client == nullptr; });
  // Each client's last event is on its way.
  while (!links_.empty()) {
    std::vector<std::function<void()>> work;
    {
      base::MutexLock lock(mutex_);
      while (inbox_.empty()) wake_.Wait(mutex_);
      work.swap(inbox_);
    }
    for (const auto& item : work) item();
  }
  source_.TakeActions();
}

LinkId LinkSender::LinkTo(const HandoffPeer& peer) {
  const PeerName name(peer.address, peer.incarnation);
  const auto known = link_of_peer_.find(name);
  if (known != link_of_peer_.end()) return known->second;
  const LinkId id{next_link_++};
  Link& link = links_[id];
  link.peer = peer;
  link.dial_at = clock_.Now();
  const auto redial = redials_.find(name);
  if (redial != redials_.end()) link.dial_at = std::max(link.dial_at, redial->second.not_before);
  link_of_peer_.emplace(name, id);
  return id;
}

void LinkSender::Dial(LinkId id, Link& link) {
  link.dialled_at = clock_.Now();
  link.link_id = base::Id128::Random();
  LinkHello hello = {.incarnation = worker_.incarnation,
                     .peer_incarnation = link.peer.incarnation,
                     .compatibility = worker_.compatibility,
                     .transports = transports_,
                     .link_id = link.link_id};
  if (shm_ != nullptr) {
    hello.shm = shm_->Offer();
    link.shm_nonce = hello.shm->nonce;
  }
  link.client = LinkClient::Open(id, base::OpenChannel(link.peer.address), hello, *this);
}

void LinkSender::Greeted(LinkId id, const LinkHelloReply& reply) {
  Link& link = links_.at(id);
  if (link.lost) return;
  if (const absl::Status status = CheckReply(link, reply); !status.ok()) {
    Lose(id, link, status);
    return;
  }
  link.transport = reply.transport;
  link.heartbeat_at = clock_.Now() + options_.heartbeat_interval;
  redials_.erase({link.peer.address, link.peer.incarnation});
  if (reply.transport == TransportKind::kGrpc) link.client->StartPushing();
  worker_.probe.CountLink(reply.transport, 1);
  LOG(INFO) << "link up" << base::LogField("peer", link.peer.address)
            << base::LogField("transport", Name(reply.transport));
  source_.OnLinkUp(id, clock_.Now());
  link.client->StartReading();
}

absl::Status LinkSender::CheckReply(const Link& link, const LinkHelloReply& reply) const {
  if (reply.incarnation != link.peer.incarnation) {
    return absl::UnavailableError(absl::StrCat("the decode worker at ", link.peer.address,
                                               " is another incarnation than the one asked for"));
  }
  if (std::find(transports_.begin(), transports_.end(), reply.transport) == transports_.end()) {
    return absl::InternalError(absl::StrCat("the decode worker chose ", Name(reply.transport),
                                            ", which was not offered"));
  }
  return absl::OkStatus();
}

// From here on it only waits for the end of its streams.
void LinkSender::Lose(LinkId id, Link& link, const absl::Status& status) {
  CHECK(!link.lost);
  link.lost = true;
  if (link.transport.has_value()) worker_.probe.CountLink(*link.transport, -1);
  if (shm_ != nullptr) shm_->Forget(link.shm_nonce);
  const PeerName name(link.peer.address, link.peer.incarnation);
  link_of_peer_.erase(name);
  Redial& redial = redials_[name];
  redial.delay = std::clamp(2 * redial.delay, options_.redial_delay_min, options_.redial_delay_max);
  redial.not_before = clock_.Now() + redial.delay;
  LOG(INFO) << "link lost" << base::LogField("peer", link.peer.address)
            << base::LogField("status", status.ToString());
  if (link.client != nullptr) link.client->Cancel();
  source_.OnLinkLost(id, status);
}

void LinkSender::Forget(LinkId id, const absl::Status& status) {
  const auto at = links_.find(id);
  CHECK(at != links_.end());
  if (!at->second.lost) Lose(id, at->second, status);
  links_.erase(at);
}

void LinkSender::TendLinks() {
  const absl::Time now = clock_.Now();
  for (auto& [id, link] : links_) {
    if (link.lost) continue;
    if (link.client == nullptr) {
      if (now >= link.dial_at) Dial(id, link);
    } else if (!link.transport.has_value()) {
      if (now >= link.dialled_at + options_.no_progress_timeout) {
        Lose(id, link, absl::UnavailableError(absl::StrCat("the decode worker at ",
                                                           link.peer.address, " does not answer")));
      }
    } else {
      if (now >= link.heartbeat_at) {
        link.client->Send(Heartbeat{});
        link.heartbeat_at = now + options_.heartbeat_interval;
      }
      PushWhatFits(id, link);
    }
  }
  std::erase_if(redials_,
                [&](const auto& entry) { return now > entry.second.not_before + kRedialMemory; });
}

// The pins are told first, so that they are true when an end is heard of.
void LinkSender::CarryOut() {
  std::vector<SourceAction> actions = source_.TakeActions();
  if (actions.empty()) return;
  PublishPins();
  for (SourceAction& action : actions) {
    std::visit([this](auto& typed) { CarryOut(typed); }, action);
  }
}

void LinkSender::CarryOut(SendToSink& action) {
  Link& link = links_.at(action.link);
  if (link.lost) return;
  auto* range = std::get_if<AnnounceRange>(&action.message);
  if (range == nullptr) {
    link.client->Send(action.message);
    return;
  }
  if (link.transport == TransportKind::kGrpc) {
    PushQueue& queue = link.pushes[range->key];
    if (queue.ranges.empty()) link.push_turns.push_back(range->key);
    queue.ranges.push_back(std::move(*range));
    return;
  }
  if (options_.checksums) range->checksum = ChecksumOf(*range);
  worker_.probe.CountBytes(*link.transport, RangeBytes(*range));
  link.client->Send(action.message);
}

void LinkSender::CarryOut(HandoffEnded& action) {
  const auto at = active_.find(action.key);
  CHECK(at != active_.end()) << action.key << " ended twice";
  const auto link = links_.find(at->second.link);
  if (link != links_.end()) {
    link->second.pushes.erase(action.key);
    std::erase(link->second.push_turns, action.key);
  }
  worker_.probe.CountEnd(action.status, clock_.Now() - at->second.since);
  active_.erase(at);
  events_.OnHandoffEnded(action.key, action.status);
}

// A frame of each hand-off in turn, so that none waits for another one's whole prompt.
void LinkSender::PushWhatFits(LinkId, Link& link) {
  while (!link.push_turns.empty() && link.client->CanPush()) {
    const HandoffKey key = link.push_turns.front();
    link.push_turns.pop_front();
    PushQueue& queue = link.pushes.at(key);
    PushFrame(link, key, queue);
    if (queue.ranges.empty()) {
      link.pushes.erase(key);
    } else {
      link.push_turns.push_back(key);
    }
  }
}

void LinkSender::PushFrame(Link& link, const HandoffKey&, PushQueue& queue) {
  AnnounceRange& range = queue.ranges.front();
  if (queue.offset == 0) {
    if (options_.checksums) range.checksum = ChecksumOf(range);
    link.client->Send(range);
  }
  const uint64_t bytes = std::min<uint64_t>(RangeBytes(range) - queue.offset, kFramePayloadBytesMax);
  link.client->Push(
      MakeFrame(worker_.arena.view(), link.link_id, range, queue.offset, bytes));
  worker_.probe.CountBytes(TransportKind::kGrpc, bytes);
  queue.offset += bytes;
  if (queue.offset < RangeBytes(range)) return;
  queue.ranges.pop_front();
  queue.offset = 0;
}

uint64_t LinkSender::ChecksumOf(const AnnounceRange& range) const {
  std::vector<KvBlockId> blocks;
  blocks.reserve(range.blocks.size());
  for (const KvBlockRef& block : range.blocks) blocks.push_back(block.id);
  return RangeChecksum(worker_.arena.view(), range.layer, blocks);
}

uint64_t LinkSender::RangeBytes(const AnnounceRange& range) const {
  return range.blocks.size() * worker_.arena.view().layout.layer_block_bytes();
}

void LinkSender::PublishPins() {
  const HandoffSource::Pins pins = source_.pins();
  const absl::Duration age =
      pins.oldest.has_value() ? clock_.Now() - *pins.oldest : absl::ZeroDuration();
  worker_.probe.SetPins(pins.blocks, age);
  base::MutexLock lock(mutex_);
  owed_bytes_ = pins.owed_layer_blocks * worker_.arena.view().layout.layer_block_bytes();
  oldest_pin_ = pins.oldest;
}

}  // namespace baton::kvstore
