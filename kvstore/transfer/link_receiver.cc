#include "kvstore/transfer/link_receiver.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "kvstore/transfer/range_frame.h"
#include "kvstore/transfer/shm_transport.h"

namespace baton::kvstore {
namespace {

// Handing a descriptor over takes microseconds; a source that is stuck must not hold up other links' copies for long.
constexpr absl::Duration kShmConnectTimeout = absl::Milliseconds(500);

HandoffSinkOptions SinkOptions(const kernels::KvLayout& layout, const LinkReceiverOptions& options) {
  return {.layers = layout.layers,
          .block_tokens = layout.block_tokens,
          .layer_block_bytes = layout.layer_block_bytes(),
          .no_progress_timeout = options.no_progress_timeout,
          .early_offer_hold = options.early_offer_hold,
          .offer_timeout = options.offer_timeout,
          .early_offers_max = options.early_offers_max};
}

// The bytes of a message that lies in several slices, taken from front to back.
class SliceCursor {
 public:
  explicit SliceCursor(const grpc::ByteBuffer& buffer) { ok_ = buffer.Dump(&slices_).ok(); }

  bool ok() const { return ok_; }

  // REQUIRES: as many bytes are left.
  void Take(uint8_t* to, uint64_t bytes) {
    while (bytes > 0) {
      const grpc::Slice& slice = slices_[index_];
      const uint64_t part = std::min<uint64_t>(bytes, slice.size() - offset_);
      std::memcpy(to, slice.begin() + offset_, part);
      to += part;
      bytes -= part;
      offset_ += part;
      if (offset_ < slice.size()) continue;
      ++index_;
      offset_ = 0;
    }
  }

 private:
  std::vector<grpc::Slice> slices_;
  size_t index_ = 0;
  uint64_t offset_ = 0;
  bool ok_ = false;
};

// Copies a piece of a range from a message into the blocks it belongs to.
void Scatter(SliceCursor& from, const PushedBytes& pushed, const kernels::PagedKvView& view,
             absl::Span<const KvBlockId> destination) {
  const uint64_t block_bytes = view.layout.layer_block_bytes();
  uint64_t offset = pushed.offset;
  uint64_t left = pushed.bytes;
  while (left > 0) {
    const auto block = static_cast<uint32_t>(destination[offset / block_bytes]);
    const uint64_t begin = offset % block_bytes;
    const uint64_t bytes = std::min(left, block_bytes - begin);
    from.Take(view.LayerBlock(pushed.layer, block) + begin, bytes);
    offset += bytes;
    left -= bytes;
  }
}

}  // namespace

LinkReceiver::LinkReceiver(LinkWorker worker, const LinkReceiverOptions& options,
                           HandoffReceiverEvents& events)
    : worker_(std::move(worker)),
      options_(options),
      events_(events),
      service_(MakeLinkService(*this)),
      sink_(SinkOptions(worker_.arena.view().layout, options), worker_.pool),
      thread_([this] { Run(); }) {}

LinkReceiver::~LinkReceiver() {
  Shutdown();
  {
    base::MutexLock lock(mutex_);
    stopping_ = true;
    wake_.NotifyAll();
  }
  thread_.join();
}

void LinkReceiver::Expect(const HandoffKey& key, ExpectedHandoff expected) {
  base::MutexLock lock(mutex_);
  const absl::Time now = clock_.Now();
  expected_at_.emplace(key, now);
  sink_.Expect(key, std::move(expected), now);
  if (shut_down_) sink_.Shutdown(absl::UnavailableError("the decode worker stops"));
  poked_ = true;
  wake_.NotifyOne();
}

bool LinkReceiver::Cancel(const HandoffKey& key) {
  base::MutexLock lock(mutex_);
  while (copying_ == key) copied_.Wait(mutex_);
  if (!sink_.Cancel(key)) return false;
  expected_at_.erase(key);
  poked_ = true;
  wake_.NotifyOne();
  return true;
}

void LinkReceiver::Decline(const HandoffKey& key) {
  base::MutexLock lock(mutex_);
  sink_.Decline(key);
  poked_ = true;
  wake_.NotifyOne();
}

void LinkReceiver::Shutdown() {
  base::MutexLock lock(mutex_);
  shut_down_ = true;
  poked_ = true;
  wake_.NotifyOne();
}

void LinkReceiver::OnHello(std::shared_ptr<ControlStream> stream, absl::StatusOr<LinkHello> hello) {
  Post(HelloCame{std::move(stream), std::move(hello)});
}

void LinkReceiver::OnMessage(const std::shared_ptr<ControlStream>& stream,
                             absl::StatusOr<SourceMessage> message) {
  Post(MessageCame{stream, std::move(message)});
}

void LinkReceiver::OnStreamEnded(const std::shared_ptr<ControlStream>& stream) {
  Post(ControlEnded{stream});
}

void LinkReceiver::OnFrame(const std::shared_ptr<PushStream>& stream, grpc::ByteBuffer frame) {
  Post(FrameCame{stream, std::move(frame)});
}

void LinkReceiver::OnStreamEnded(const std::shared_ptr<PushStream>& stream) {
  Post(PushEnded{stream});
}

void LinkReceiver::Post(Input input) {
  base::MutexLock lock(mutex_);
  inbox_.push_back(std::move(input));
  wake_.NotifyOne();
}

// Inputs go before copies, so that replies and ends never wait for more than one copy.
void LinkReceiver::Run() {
  std::vector<Input> inputs;
  while (WaitForInput(inputs)) {
    for (Input& input : inputs) {
      std::visit([this](auto& came) { Handle(came); }, input);
      CarryOut();
    }
    bool shut_down;
    {
      base::MutexLock lock(mutex_);
      sink_.Tick(clock_.Now());
      shut_down = shut_down_;
    }
    CarryOut();
    if (shut_down) CloseAll();
    if (FetchOne()) CarryOut();
  }
  CloseAll();
}

// Returns when there is something to do, be it a copy; false: it is time to stop.
bool LinkReceiver::WaitForInput(std::vector<Input>& inputs) {
  inputs.clear();
  base::MutexLock lock(mutex_);
  const absl::Time wake_at = sink_.NextDeadline();
  while (inbox_.empty() && !poked_ && !stopping_ && !sink_.fetch_due()) {
    const absl::Duration left = wake_at - clock_.Now();
    if (left <= absl::ZeroDuration()) break;
    wake_.WaitFor(mutex_, left);
  }
  poked_ = false;
  inputs.swap(inbox_);
  return !(inputs.empty() && stopping_);
}

void LinkReceiver::Handle(HelloCame& came) {
  absl::Status status = came.hello.status();
  if (status.ok()) status = CheckHello(*came.hello);
  if (!status.ok()) {
    LOG(WARNING) << "link refused" << base::LogField("status", status.ToString());
    came.stream->Close(status);
    return;
  }
  absl::StatusOr<Chosen> chosen = ChooseTransport(*came.hello);
  if (!chosen.ok()) {
    LOG(WARNING) << "link refused" << base::LogField("status", chosen.status().ToString());
    came.stream->Close(chosen.status());
    return;
  }
  const LinkId id{next_link_++};
  links_.emplace(id, Link{.incarnation = came.hello->incarnation,
                          .link_id = came.hello->link_id,
                          .transport = chosen->transport,
                          .control = came.stream,
                          .reader = std::move(chosen->reader)});
  worker_.probe.CountLink(chosen->transport, 1);
  LOG(INFO) << "link up" << base::LogField("prefill", came.hello->incarnation)
            << base::LogField("transport", Name(chosen->transport));
  came.stream->Send(LinkHelloReply{worker_.incarnation, chosen->transport});
  {
    base::MutexLock lock(mutex_);
    sink_.OnLinkUp(id, came.hello->incarnation,
                   chosen->transport == TransportKind::kGrpc ? RangeDelivery::kPushed
                                                             : RangeDelivery::kCopied,
                   clock_.Now());
  }
  came.stream->StartReading();
}

absl::Status LinkReceiver::CheckHello(const LinkHello& hello) {
  {
    base::MutexLock lock(mutex_);
    if (shut_down_) return absl::UnavailableError("the decode worker stops");
  }
  if (hello.peer_incarnation != worker_.incarnation) {
    return absl::UnavailableError(
        absl::StrCat("incarnation ", hello.peer_incarnation.ToHex(), " is not here, this is ",
                     worker_.incarnation.ToHex()));
  }
  if (links_.size() >= options_.links_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat(links_.size(), " links are open, at most ", options_.links_max));
  }
  return CheckCompatible(worker_.compatibility, hello.compatibility);
}

// The source's order counts. Why a better one is not taken is logged: a slow transport must not be a riddle.
absl::StatusOr<LinkReceiver::Chosen> LinkReceiver::ChooseTransport(const LinkHello& hello) const {
  std::string reasons;
  for (const TransportKind kind : hello.transports) {
    absl::StatusOr<std::unique_ptr<RangeReader>> reader = TryTransport(kind, hello);
    if (reader.ok()) {
      if (!reasons.empty()) LOG(INFO) << "transports not taken" << base::LogField("why", reasons);
      return Chosen{kind, *std::move(reader)};
    }
    absl::StrAppend(&reasons, reasons.empty() ? "" : "; ", Name(kind), ": ",
                    reader.status().message());
  }
  return absl::FailedPreconditionError(absl::StrCat("no transport works: ", reasons));
}

absl::StatusOr<std::unique_ptr<RangeReader>> LinkReceiver::TryTransport(
    TransportKind kind, const LinkHello& hello) const {
  const std::vector<TransportKind>& allowed = options_.transports;
  if (std::find(allowed.begin(), allowed.end(), kind) == allowed.end()) {
    return absl::FailedPreconditionError("not allowed here");
  }
  switch (kind) {
    case TransportKind::kLoopback: {
      if (worker_.loopback == nullptr) return absl::FailedPreconditionError("nobody else is here");
      std::unique_ptr<RangeReader> reader = worker_.loopback->Find(hello.incarnation);
      if (reader == nullptr) return absl::FailedPreconditionError("it is in another process");
      return reader;
    }
    case TransportKind::kShm:
      if (!hello.shm.has_value()) return absl::FailedPreconditionError("nothing was offered");
      return ConnectShm(*hello.shm, worker_.arena.view().layout, kShmConnectTimeout);
    case TransportKind::kGrpc:
      return nullptr;
  }
  return absl::FailedPreconditionError("it is not known here");
}

void LinkReceiver::Handle(MessageCame& came) {
  const std::optional<LinkId> link = LinkOf(*came.stream);
  if (!link.has_value()) return;
  if (!came.message.ok()) {
    LoseLink(*link, came.message.status());
    return;
  }
  {
    base::MutexLock lock(mutex_);
    sink_.OnMessage(*link, *came.message, clock_.Now());
  }
  came.stream->ReadNext();
}

void LinkReceiver::Handle(ControlEnded& ended) {
  const std::optional<LinkId> link = LinkOf(*ended.stream);
  if (link.has_value()) LoseLink(*link, absl::UnavailableError("the prefill worker is gone"));
}

void LinkReceiver::Handle(PushEnded& ended) {
  const std::optional<LinkId> link = LinkOf(*ended.stream);
  if (link.has_value()) LoseLink(*link, absl::UnavailableError("the stream of KV bytes broke"));
}

void LinkReceiver::Handle(FrameCame& came) {
  const absl::Status status = TakeFrame(came.stream, came.frame);
  if (status.ok()) {
    came.stream->ReadNext();
    return;
  }
  LOG(WARNING) << "frame refused" << base::LogField("status", status.ToString());
  came.stream->Close(status);
  const std::optional<LinkId> link = LinkOf(*came.stream);
  if (link.has_value()) LoseLink(*link, status);
}

absl::Status LinkReceiver::TakeFrame(const std::shared_ptr<PushStream>& stream,
                                     const grpc::ByteBuffer& frame) {
  const size_t bytes = frame.Length();
  SliceCursor cursor(frame);
  if (!cursor.ok() || bytes < kFrameHeaderBytes) {
    return absl::DataLossError(absl::StrCat("a frame has ", bytes, " bytes, less than its header"));
  }
  std::array<char, kFrameHeaderBytes> header;
  cursor.Take(reinterpret_cast<uint8_t*>(header.data()), header.size());
  ASSIGN_OR_RETURN(const RangeFrame decoded,
                   DecodeFrameHeader({header.data(), header.size()}, bytes - kFrameHeaderBytes));
  const auto at = std::find_if(links_.begin(), links_.end(), [&](const auto& entry) {
    return entry.second.link_id == decoded.link_id;
  });
  if (at == links_.end()) return absl::NotFoundError("the frame's link is not open");
  if (at->second.push == nullptr) at->second.push = stream;
  if (at->second.push != stream) return absl::DataLossError("a link pushes on one stream only");

  const PushedBytes& pushed = decoded.pushed;
  std::optional<std::vector<KvBlockId>> destination;
  {
    base::MutexLock lock(mutex_);
    destination = sink_.OnBytes(at->first, pushed, clock_.Now());
    if (!destination.has_value()) return absl::OkStatus();
    SetCopying(pushed.key);
  }
  Scatter(cursor, pushed, worker_.arena.view(), *destination);
  base::MutexLock lock(mutex_);
  SetCopying(std::nullopt);
  sink_.OnBytesPlaced(pushed, clock_.Now());
  return absl::OkStatus();
}

void LinkReceiver::LoseLink(LinkId id, const absl::Status& status) {
  const auto at = links_.find(id);
  CHECK(at != links_.end());
  Link link = std::move(at->second);
  links_.erase(at);
  worker_.probe.CountLink(link.transport, -1);
  LOG(INFO) << "link lost" << base::LogField("prefill", link.incarnation)
            << base::LogField("status", status.ToString());
  link.control->Close(status);
  if (link.push != nullptr) link.push->Close(status);
  base::MutexLock lock(mutex_);
  sink_.OnLinkLost(id, status);
}

std::optional<LinkId> LinkReceiver::LinkOf(const ControlStream& stream) const {
  for (const auto& [id, link] : links_) {
    if (link.control.get() == &stream) return id;
  }
  return std::nullopt;
}

std::optional<LinkId> LinkReceiver::LinkOf(const PushStream& stream) const {
  for (const auto& [id, link] : links_) {
    if (link.push.get() == &stream) return id;
  }
  return std::nullopt;
}

bool LinkReceiver::FetchOne() {
  std::optional<RangeFetch> fetch;
  {
    base::MutexLock lock(mutex_);
    fetch = sink_.NextFetch();
    if (!fetch.has_value()) return false;
    SetCopying(fetch->range.key);
  }
  const absl::Status status = Fetch(*fetch);
  base::MutexLock lock(mutex_);
  SetCopying(std::nullopt);
  sink_.OnRangeFetched(*fetch, status, clock_.Now());
  return true;
}

absl::Status LinkReceiver::Fetch(const RangeFetch& fetch) {
  const AnnounceRange& range = fetch.range;
  const kernels::PagedKvView& view = worker_.arena.view();
  const Link& link = links_.at(fetch.link);
#ifdef BATON_PLANTED_FAULTS
  if (options_.planted_fault == PlantedFault::kStaleBlock && range.layer == 0 &&
      range.first_block == 0) {
    if (fetch.delivery == RangeDelivery::kCopied) {
      RETURN_IF_ERROR(link.reader->Read(range, view, fetch.destination));
    }
    // As in a fresh arena.
    std::memset(view.LayerBlock(0, static_cast<uint32_t>(fetch.destination[0])), 0,
                view.layout.layer_block_bytes());
    return absl::OkStatus();
  }
#endif
  if (fetch.delivery == RangeDelivery::kCopied) {
    RETURN_IF_ERROR(link.reader->Read(range, view, fetch.destination));
  }
  worker_.probe.CountBytes(link.transport,
                           range.blocks.size() * view.layout.layer_block_bytes());
  if (!options_.checksums || range.checksum == 0) return absl::OkStatus();
  // Over our own copy: it covers the way here and a block that changed hands meanwhile.
  if (RangeChecksum(view, range.layer, fetch.destination) == range.checksum) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("the checksum of range ", range.range_index, " (layer ",
                                          range.layer, ", blocks ", range.first_block, " + ",
                                          range.blocks.size(), ") is wrong"));
}

void LinkReceiver::SetCopying(const std::optional<HandoffKey>& key) {
  copying_ = key;
  if (!key.has_value()) copied_.NotifyAll();
}

void LinkReceiver::CarryOut() {
  std::vector<SinkAction> actions;
  {
    base::MutexLock lock(mutex_);
    actions = sink_.TakeActions();
  }
  for (SinkAction& action : actions) {
    std::visit([this](auto& typed) { CarryOut(typed); }, action);
  }
}

void LinkReceiver::CarryOut(SendToSource& action) {
  const auto at = links_.find(action.link);
  if (at != links_.end()) at->second.control->Send(action.message);
}

void LinkReceiver::CarryOut(HandoffReady& action) {
  CountEnd(action.key, absl::OkStatus());
  events_.OnHandoffReady(action.key, std::move(action.received));
}

void LinkReceiver::CarryOut(HandoffFailed& action) {
  CountEnd(action.key, action.status);
  events_.OnHandoffFailed(action.key, action.status);
}

void LinkReceiver::CarryOut(CloseLink& action) {
  if (links_.contains(action.link)) LoseLink(action.link, action.status);
}

void LinkReceiver::CountEnd(const HandoffKey& key, const absl::Status& status) {
  absl::Time begin;
  {
    base::MutexLock lock(mutex_);
    const auto at = expected_at_.find(key);
    CHECK(at != expected_at_.end()) << key << " ended twice";
    begin = at->second;
    expected_at_.erase(at);
  }
  worker_.probe.CountEnd(status, clock_.Now() - begin);
}

void LinkReceiver::CloseAll() {
  const absl::Status status = absl::UnavailableError("the decode worker stops");
  {
    base::MutexLock lock(mutex_);
    sink_.Shutdown(status);
  }
  CarryOut();
  while (!links_.empty()) LoseLink(links_.begin()->first, status);
  CarryOut();
}

}  // namespace baton::kvstore
