// Hand-offs without links: both ends in one object, which copies announced blocks from one arena to the other on a thread
// of its own. It holds the engines to the rules of kvstore/handoff.h and can be told to misbehave.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "kernels/kv_layout.h"
#include "kvstore/handoff.h"
#include "kvstore/kv_block_pool.h"

namespace baton::fakes {

// One worker's KV as the hand-off sees it.
struct HandoffEnd {
  kernels::PagedKvView kv;
  kvstore::KvBlockPool* pool = nullptr;
};

class LoopbackHandoff {
 public:
  LoopbackHandoff(const HandoffEnd& source, const HandoffEnd& sink);
  // Gives back what is expected, and tells nobody.
  ~LoopbackHandoff();

  // Both before the first hand-off.
  void Connect(kvstore::HandoffSenderEvents& source, kvstore::HandoffReceiverEvents& sink);

  kvstore::HandoffSender& sender() { return sender_; }
  kvstore::HandoffReceiver& receiver() { return receiver_; }

  // Nothing is copied or completed until Release().
  void Hold();
  void Release();
  // The source, or the sink, died: the other side hears UNAVAILABLE of every hand-off, now and later.
  void KillSource();
  void KillSink();
  // Each hand-off that is sealed from now on fails on both sides with this; OK: none.
  void FailWith(const absl::Status& status);

  // Hand-offs that were begun or expected and have not ended on that side.
  size_t open_at_source() const;
  size_t open_at_sink() const;
  size_t sealed() const;

 private:
  struct Range {
    uint32_t layer;
    uint32_t first_block;
    std::vector<kvstore::KvBlockId> blocks;
    std::vector<uint64_t> generations;
  };
  struct Handoff {
    bool begun = false;
    bool sealed = false;
    bool aborted = false;
    absl::Status abort_reason;
    uint32_t tokens = 0;
    std::vector<Range> ranges;   // Not copied yet.
    std::vector<std::vector<bool>> announced;  // [layer][block]
    kvstore::SealInfo seal;

    bool expected = false;
    kvstore::ExpectedHandoff what;
    std::vector<kvstore::KvBlockId> blocks;  // The sink's.
  };

  class Sender final : public kvstore::HandoffSender {
   public:
    explicit Sender(LoopbackHandoff& loopback) : loopback_(loopback) {}
    void Begin(const kvstore::HandoffKey& key, const kvstore::HandoffPeer& peer,
               uint32_t tokens) override;
    void Announce(const kvstore::HandoffKey& key, uint32_t layer, uint32_t first_block,
                  absl::Span<const kvstore::KvBlockId> blocks) override;
    void Seal(const kvstore::HandoffKey& key, kvstore::SealInfo info) override;
    void Abort(const kvstore::HandoffKey& key, const absl::Status& reason) override;
    Pins pins() const override { return {}; }

   private:
    LoopbackHandoff& loopback_;
  };

  class Receiver final : public kvstore::HandoffReceiver {
   public:
    explicit Receiver(LoopbackHandoff& loopback) : loopback_(loopback) {}
    void Expect(const kvstore::HandoffKey& key, kvstore::ExpectedHandoff expected) override;
    bool Cancel(const kvstore::HandoffKey& key) override;
    void Decline(const kvstore::HandoffKey& key) override;

   private:
    LoopbackHandoff& loopback_;
  };

  using Event = std::function<void()>;
  void Run();
  // Moves every hand-off as far as it goes; returns what is to be told.
  std::vector<Event> Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Copy(Handoff& handoff) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckSealed(const Handoff& handoff) const;
  void GiveBack(Handoff& handoff) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndSource(const kvstore::HandoffKey& key, Handoff& handoff, const absl::Status& status,
                 std::vector<Event>& events) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FailSink(const kvstore::HandoffKey& key, Handoff& handoff, const absl::Status& status,
                std::vector<Event>& events) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const HandoffEnd source_;
  const HandoffEnd sink_;
  Sender sender_{*this};
  Receiver receiver_{*this};
  kvstore::HandoffSenderEvents* source_events_ = nullptr;
  kvstore::HandoffReceiverEvents* sink_events_ = nullptr;

  mutable base::Mutex mutex_;
  base::CondVar changed_;
  std::map<kvstore::HandoffKey, Handoff> handoffs_ ABSL_GUARDED_BY(mutex_);
  bool held_ ABSL_GUARDED_BY(mutex_) = false;
  bool source_dead_ ABSL_GUARDED_BY(mutex_) = false;
  bool sink_dead_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  size_t sealed_ ABSL_GUARDED_BY(mutex_) = 0;
  bool moved_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace baton::fakes
