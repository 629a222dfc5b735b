// Two workers that hand KV over in one process, over a real gRPC port: what the tests of links share.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "base/check.h"
#include "base/grpc_server.h"
#include "base/metrics.h"
#include "base/mutex.h"
#include "gtest/gtest.h"
#include "kvstore/block_hash.h"
#include "kvstore/transfer/link_receiver.h"
#include "kvstore/transfer/link_sender.h"

namespace baton::kvstore {

// Long enough for a loaded machine under a sanitizer; nothing waits this long when all is well.
inline constexpr absl::Duration kPatience = absl::Seconds(60);

inline constexpr kernels::KvLayout kTestLayout = {
    .layers = 4, .kv_heads = 2, .head_dim = 32, .block_tokens = 16};

inline Compatibility TestCompatibility(const kernels::KvLayout& layout = kTestLayout) {
  return {.model_digest = std::string(32, 'm'), .numerics_class = "test", .layout = layout};
}

inline HandoffKey MakeKey(uint64_t number, uint32_t attempt = 1) {
  return {.request_id = {.high = 7, .low = number}, .attempt = attempt};
}

// Collects terminal events of either side and lets a test wait for them.
class RecordedEvents final : public HandoffSenderEvents, public HandoffReceiverEvents {
 public:
  void OnHandoffEnded(const HandoffKey& key, const absl::Status& status) override {
    Record(key, status);
  }
  void OnHandoffFailed(const HandoffKey& key, const absl::Status& status) override {
    Record(key, status);
  }
  void OnHandoffReady(const HandoffKey& key, ReceivedHandoff received) override {
    {
      base::MutexLock lock(mutex_);
      received_[key] = std::move(received);
    }
    Record(key, absl::OkStatus());
  }

  // The terminal status of `key`, waited for.
  absl::Status Await(const HandoffKey& key, absl::Duration patience = kPatience) {
    const absl::Time until = absl::Now() + patience;
    base::MutexLock lock(mutex_);
    while (!ended_.contains(key)) {
      const absl::Duration left = until - absl::Now();
      if (left <= absl::ZeroDuration()) return absl::UnknownError("no terminal event came");
      changed_.WaitFor(mutex_, left);
    }
    return ended_.at(key);
  }

  bool ended(const HandoffKey& key) {
    base::MutexLock lock(mutex_);
    return ended_.contains(key);
  }

  ReceivedHandoff TakeReceived(const HandoffKey& key) {
    base::MutexLock lock(mutex_);
    return std::exchange(received_.at(key), {});
  }

 private:
  void Record(const HandoffKey& key, const absl::Status& status) {
    base::MutexLock lock(mutex_);
    CHECK(ended_.emplace(key, status).second) << key << " ended twice";
    changed_.NotifyAll();
  }

  base::Mutex mutex_;
  base::CondVar changed_;
  std::map<HandoffKey, absl::Status> ended_ ABSL_GUARDED_BY(mutex_);
  std::map<HandoffKey, ReceivedHandoff> received_ ABSL_GUARDED_BY(mutex_);
};

// Blocks, bytes and counters of one worker.
struct WorkerParts {
  WorkerParts(HandoffProbe::Side side, uint32_t blocks,
              const kernels::KvLayout& layout = kTestLayout)
      : probe(metrics, side), arena(*KvArena::Create(layout, blocks)),
        pool(blocks, arena->generations()) {}

  LinkWorker ForLink(LoopbackRegistry* loopback) {
    return {.pool = pool,
            .arena = *arena,
            .compatibility = TestCompatibility(arena->view().layout),
            .incarnation = incarnation,
            .probe = probe,
            .loopback = loopback};
  }

  base::Id128 incarnation = base::Id128::Random();
  base::Metrics metrics;
  HandoffProbe probe;
  std::unique_ptr<KvArena> arena;
  KvBlockPool pool;
};

struct PrefillSide {
  PrefillSide(uint32_t blocks, const LinkSenderOptions& options, LoopbackRegistry* loopback,
              const kernels::KvLayout& layout = kTestLayout,
              const base::Id128& incarnation = base::Id128::Random())
      : parts(HandoffProbe::Side::kSource, blocks, layout) {
    parts.incarnation = incarnation;
    auto made = LinkSender::Create(parts.ForLink(loopback), options, events);
    CHECK_OK(made.status());
    sender = *std::move(made);
  }

  // Blocks of random bytes.
  std::vector<KvBlockId> Write(uint32_t count, uint32_t seed) {
    std::vector<KvBlockId> blocks(count);
    CHECK_OK(parts.pool.Allocate(absl::MakeSpan(blocks)));
    std::mt19937_64 random(seed);
    const kernels::PagedKvView& view = parts.arena->view();
    for (uint32_t layer = 0; layer < view.layout.layers; ++layer) {
      for (const KvBlockId block : blocks) {
        uint8_t* bytes = view.LayerBlock(layer, static_cast<uint32_t>(block));
        for (uint64_t i = 0; i < view.layout.layer_block_bytes(); i += 8) {
          const uint64_t word = random();
          memcpy(bytes + i, &word, 8);
        }
      }
    }
    return blocks;
  }

  WorkerParts parts;
  RecordedEvents events;
  std::unique_ptr<LinkSender> sender;
};

struct DecodeSide {
  DecodeSide(uint32_t blocks, const LinkReceiverOptions& options, LoopbackRegistry* loopback,
             const kernels::KvLayout& layout = kTestLayout)
      : parts(HandoffProbe::Side::kSink, blocks, layout) {
    receiver = std::make_unique<LinkReceiver>(parts.ForLink(loopback), options, events);
    StartServer(0);
  }
  ~DecodeSide() {
    receiver->Shutdown();
    server->Stop(absl::Seconds(5));
    server.reset();
  }

  void StartServer(uint16_t port) {
    base::GrpcServerOptions options;
    options.port = port;
    options.services = {&receiver->service()};
    auto started = base::GrpcServer::Start(options);
    CHECK_OK(started.status());
    server = *std::move(started);
    server->SetServing(true);
  }

  HandoffPeer peer() const { return {server->address(), parts.incarnation}; }

  void Expect(const HandoffKey& key, const base::Id128& from, std::vector<uint32_t> tokens,
              uint32_t blocks_reserved, absl::Time deadline = absl::InfiniteFuture()) {
    CHECK_OK(parts.pool.Reserve(blocks_reserved));
    receiver->Expect(key, {.prefill_incarnation = from,
                           .tokens = std::move(tokens),
                           .digest_extras = "extras",
                           .blocks_reserved = blocks_reserved,
                           .deadline = deadline});
  }

  // Gives back what a finished hand-off left.
  void Free(const ReceivedHandoff& received) {
    parts.pool.Release(received.blocks);
    parts.pool.Unreserve(received.reserved_left);
  }

  WorkerParts parts;
  RecordedEvents events;
  std::unique_ptr<LinkReceiver> receiver;
  std::unique_ptr<base::GrpcServer> server;
};

inline std::vector<uint32_t> TestTokens(uint32_t count, uint32_t seed) {
  std::vector<uint32_t> tokens(count);
  std::mt19937 random(seed);
  for (uint32_t& token : tokens) token = random() % 49152;
  return tokens;
}

inline SealInfo TestSeal(const std::vector<uint32_t>& tokens, uint32_t block_tokens) {
  const std::vector<std::string> digests = BlockDigests(tokens, block_tokens, "extras");
  return {.tokens = static_cast<uint32_t>(tokens.size()),
          .last_block_digest = digests.empty() ? "" : digests.back(),
          .first_tokens = {{.sample_index = 0, .token = 42, .logprob = -0.5f, .top = {{42, -0.5f}}}}};
}

// Whether two lists of blocks hold the same bytes in all layers.
inline bool SameBytes(const kernels::PagedKvView& a, absl::Span<const KvBlockId> a_blocks,
                      const kernels::PagedKvView& b, absl::Span<const KvBlockId> b_blocks) {
  if (a_blocks.size() != b_blocks.size()) return false;
  for (uint32_t layer = 0; layer < a.layout.layers; ++layer) {
    for (size_t i = 0; i < a_blocks.size(); ++i) {
      if (memcmp(a.LayerBlock(layer, static_cast<uint32_t>(a_blocks[i])),
                 b.LayerBlock(layer, static_cast<uint32_t>(b_blocks[i])),
                 a.layout.layer_block_bytes()) != 0) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace baton::kvstore
