// A prefill engine and a decode engine over fake models, joined by a LoopbackHandoff, with a test in the router's place.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/metrics.h"
#include "decode_worker/decode_engine.h"
#include "kvstore/kv_arena.h"
#include "kvstore/kv_block_pool.h"
#include "prefill_worker/prefill_engine.h"
#include "tests/fakes/fake_model.h"
#include "tests/fakes/gated_model.h"
#include "tests/fakes/loopback_handoff.h"
#include "tests/fakes/recording_routers.h"
#include "worker/engine_request.h"

namespace baton::fakes {

struct EnginePairOptions {
  FakeModelOptions model{.context_tokens = 512, .block_tokens = 8};
  uint32_t prefill_blocks = 128;
  uint32_t decode_blocks = 128;
  prefill_worker::PrefillEngineOptions prefill{
      .runner = {.chunk_tokens = 16, .running_max = 8, .prefill_packed_max = 4}};
  decode_worker::DecodeEngineOptions decode{
      .runner = {.chunk_tokens = 16, .running_max = 16, .prefill_packed_max = 4}};
};

class EnginePair {
 public:
  explicit EnginePair(EnginePairOptions options = {});
  // CHECKs, by the pools' destructors, that every block came back.
  ~EnginePair();

  // A greedy request of `prompt_tokens` pseudo-random tokens; a fresh key each time.
  worker::EngineRequest MakeRequest(uint32_t prompt_tokens, uint32_t max_tokens);

  // To both, as a router does. Each returns what its worker said.
  absl::Status Admit(const worker::EngineRequest& request);
  absl::Status AdmitLocal(const worker::EngineRequest& request);
  absl::Status Prefill(const worker::EngineRequest& request);
  absl::Status PrefillAlone(const worker::EngineRequest& request);
  void Cancel(const worker::AttemptKey& key);

  // Waits until the answer is over, and returns it.
  Heard Await(const worker::AttemptKey& key);
  // What one runner gives for the request, without workers.
  std::vector<uint32_t> Reference(worker::EngineRequest request) const;

  // Waits until both engines have ended everything; false: not within ten seconds.
  bool WaitUntilIdle();
  // Nothing is held, reserved or pinned on either side.
  bool PoolsAreFree() const;

  const base::Id128 router{11, 12};
  GatedModel& prefill_gate() { return prefill_gate_; }
  GatedModel& decode_gate() { return decode_gate_; }
  LoopbackHandoff& handoff() { return *handoff_; }
  RecordingRouters& routers() { return routers_; }
  prefill_worker::PrefillEngine& prefill() { return *prefill_; }
  decode_worker::DecodeEngine& decode() { return *decode_; }
  kvstore::KvBlockPool& prefill_pool() { return prefill_pool_; }
  kvstore::KvBlockPool& decode_pool() { return decode_pool_; }
  base::Metrics& metrics() { return metrics_; }

 private:
  const EnginePairOptions options_;
  base::Metrics metrics_;
  worker::WorkerProbe prefill_probe_{metrics_, worker::WorkerRole::kPrefill};
  worker::WorkerProbe decode_probe_{metrics_, worker::WorkerRole::kDecode};
  RecordingRouters routers_;
  FakeModel prefill_model_;
  FakeModel decode_model_;
  GatedModel prefill_gate_{prefill_model_};
  GatedModel decode_gate_{decode_model_};
  std::unique_ptr<kvstore::KvArena> prefill_arena_;
  std::unique_ptr<kvstore::KvArena> decode_arena_;
  kvstore::KvBlockPool prefill_pool_;
  kvstore::KvBlockPool decode_pool_;
  std::unique_ptr<LoopbackHandoff> handoff_;
  std::unique_ptr<prefill_worker::PrefillEngine> prefill_;
  std::unique_ptr<decode_worker::DecodeEngine> decode_;
  const base::Id128 prefill_incarnation_{21, 22};
  uint64_t requests_made_ = 0;
};

}  // namespace baton::fakes
