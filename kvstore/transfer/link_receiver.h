// The decode worker's end of hand-offs, over links that prefill workers dial.
//
//   LinkService streams ─ messages, frames ─▶ inbox ─▶ hand-off thread ─▶ HandoffSink ─▶ replies, events
//   admission ─ Expect, Cancel ─────────────────────────────────────────▶    │
//                                                                            └─▶ copies and checks one range at a time
//
// The machine is under a lock, so that Expect() and Cancel() take effect before they return; bytes are copied outside of it,
// by the hand-off thread alone. Cancel() waits for a copy into the hand-off's blocks that is under way: a range of about a
// MiB, so well below a millisecond. Everything else happens on the hand-off thread.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "kvstore/handoff.h"
#include "kvstore/handoff_sink.h"
#include "kvstore/transfer/link_service.h"
#include "kvstore/transfer/link_worker.h"
#include "kvstore/transfer/range_reader.h"
#include "kvstore/transfer/steady_clock.h"

namespace baton::kvstore {

#ifdef BATON_PLANTED_FAULTS
// Wrong on purpose, to prove that tests of equality can fail.
enum class PlantedFault {
  kNone,
  kStaleBlock,  // The first block of each hand-off is zero in layer 0, and its range is not checked.
};
#endif

struct LinkReceiverOptions {
  // What may be used; of these, the source's best one that works is taken.
  std::vector<TransportKind> transports = {TransportKind::kLoopback, TransportKind::kShm,
                                           TransportKind::kGrpc};
  bool checksums = true;  // False: not verified, even if the source sends them.
  absl::Duration no_progress_timeout = absl::Seconds(3);
  absl::Duration early_offer_hold = absl::Seconds(1);
  absl::Duration offer_timeout = absl::Seconds(10);
  uint32_t early_offers_max = 1024;
  uint32_t links_max = 1024;
#ifdef BATON_PLANTED_FAULTS
  PlantedFault planted_fault = PlantedFault::kNone;
#endif
};

class LinkReceiver final : public HandoffReceiver, private LinkServiceEvents {
 public:
  // `events` outlives it.
  LinkReceiver(LinkWorker worker, const LinkReceiverOptions& options,
               HandoffReceiverEvents& events);
  // Shuts down. REQUIRES: the server that service() is registered with has stopped.
  ~LinkReceiver() override;

  // To be registered with the worker's server, once.
  grpc::Service& service() { return *service_; }

  void Expect(const HandoffKey& key, ExpectedHandoff expected) override;
  bool Cancel(const HandoffKey& key) override;
  void Decline(const HandoffKey& key) override;

  // Fails all hand-offs with UNAVAILABLE, closes all links and refuses new ones. Call it before the server stops, which
  // would else wait for the links. Returns at once; idempotent.
  void Shutdown();

 private:
  struct Link {
    base::Id128 incarnation;
    base::Id128 link_id;
    TransportKind transport;
    std::shared_ptr<ControlStream> control;
    std::shared_ptr<PushStream> push;     // Null until the first frame.
    std::unique_ptr<RangeReader> reader;  // Null if ranges are pushed.
  };

  // What came from gRPC's threads.
  struct HelloCame {
    std::shared_ptr<ControlStream> stream;
    absl::StatusOr<LinkHello> hello;
  };
  struct MessageCame {
    std::shared_ptr<ControlStream> stream;
    absl::StatusOr<SourceMessage> message;
  };
  struct ControlEnded {
    std::shared_ptr<ControlStream> stream;
  };
  struct FrameCame {
    std::shared_ptr<PushStream> stream;
    grpc::ByteBuffer frame;
  };
  struct PushEnded {
    std::shared_ptr<PushStream> stream;
  };
  using Input = std::variant<HelloCame, MessageCame, ControlEnded, FrameCame, PushEnded>;

  struct Chosen {
    TransportKind transport;
    std::unique_ptr<RangeReader> reader;
  };

  void OnHello(std::shared_ptr<ControlStream> stream, absl::StatusOr<LinkHello> hello) override;
  void OnMessage(const std::shared_ptr<ControlStream>& stream,
                 absl::StatusOr<SourceMessage> message) override;
  void OnStreamEnded(const std::shared_ptr<ControlStream>& stream) override;
  void OnFrame(const std::shared_ptr<PushStream>& stream, grpc::ByteBuffer frame) override;
  void OnStreamEnded(const std::shared_ptr<PushStream>& stream) override;
  void Post(Input input);

  // The hand-off thread, as all below.
  void Run();
  bool WaitForInput(std::vector<Input>& inputs);
  void Handle(HelloCame& came);
  void Handle(MessageCame& came);
  void Handle(ControlEnded& ended);
  void Handle(FrameCame& came);
  void Handle(PushEnded& ended);

  absl::Status CheckHello(const LinkHello& hello);
  absl::StatusOr<Chosen> ChooseTransport(const LinkHello& hello) const;
  absl::StatusOr<std::unique_ptr<RangeReader>> TryTransport(TransportKind kind,
                                                            const LinkHello& hello) const;
  absl::Status TakeFrame(const std::shared_ptr<PushStream>& stream, const grpc::ByteBuffer& frame);
  void LoseLink(LinkId id, const absl::Status& status);
  std::optional<LinkId> LinkOf(const ControlStream& stream) const;
  std::optional<LinkId> LinkOf(const PushStream& stream) const;

  bool FetchOne();  // False: none was due.
  absl::Status Fetch(const RangeFetch& fetch);
  void SetCopying(const std::optional<HandoffKey>& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Carries out what the machine wants; calls nobody under the lock.
  void CarryOut();
  void CarryOut(SendToSource& action);
  void CarryOut(HandoffReady& action);
  void CarryOut(HandoffFailed& action);
  void CarryOut(CloseLink& action);
  void CountEnd(const HandoffKey& key, const absl::Status& status);
  void CloseAll();

  const LinkWorker worker_;
  const LinkReceiverOptions options_;
  HandoffReceiverEvents& events_;
  const SteadyClock clock_;
  const std::unique_ptr<grpc::Service> service_;

  std::map<LinkId, Link> links_;  // The hand-off thread's.
  uint64_t next_link_ = 1;

  base::Mutex mutex_;
  base::CondVar wake_;
  base::CondVar copied_;
  HandoffSink sink_ ABSL_GUARDED_BY(mutex_);
  std::vector<Input> inbox_ ABSL_GUARDED_BY(mutex_);  // What streams read ahead, and their ends.
  std::optional<HandoffKey> copying_ ABSL_GUARDED_BY(mutex_);  // Into whose blocks bytes are being copied.
  std::map<HandoffKey, absl::Time> expected_at_ ABSL_GUARDED_BY(mutex_);  // Of live hand-offs.
  bool poked_ ABSL_GUARDED_BY(mutex_) = false;  // Expect(), Cancel() or Decline() left work for the thread.
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  std::thread thread_;
};

}  // namespace baton::kvstore
