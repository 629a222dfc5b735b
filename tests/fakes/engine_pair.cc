#include "tests/fakes/engine_pair.h"

#include <utility>

#include "base/check.h"
#include "runner/runner.h"

namespace baton::fakes {
namespace {

std::unique_ptr<kvstore::KvArena> MakeArena(const kernels::KvLayout& layout, uint32_t blocks) {
  auto arena = kvstore::KvArena::Create(layout, blocks);
  CHECK(arena.ok()) << arena.status().ToString();
  return *std::move(arena);
}

}  // namespace

EnginePair::EnginePair(EnginePairOptions options)
    : options_(std::move(options)),
      prefill_model_(options_.model),
      decode_model_(options_.model),
      prefill_arena_(MakeArena(prefill_model_.kv_layout(), options_.prefill_blocks)),
      decode_arena_(MakeArena(decode_model_.kv_layout(), options_.decode_blocks)),
      prefill_pool_(options_.prefill_blocks),
      decode_pool_(options_.decode_blocks),
      handoff_(std::make_unique<LoopbackHandoff>(
          HandoffEnd{prefill_arena_->view(), &prefill_pool_},
          HandoffEnd{decode_arena_->view(), &decode_pool_})),
      prefill_(std::make_unique<prefill_worker::PrefillEngine>(
          prefill_gate_, prefill_pool_, prefill_arena_->view(), options_.prefill, prefill_probe_)),
      decode_(std::make_unique<decode_worker::DecodeEngine>(
          decode_gate_, decode_pool_, decode_arena_->view(), options_.decode, decode_probe_)) {
  handoff_->Connect(*prefill_, *decode_);
  prefill_->Start(handoff_->sender(), routers_);
  decode_->Start(handoff_->receiver(), routers_);
}

EnginePair::~EnginePair() {
  prefill_gate_.Open();
  decode_gate_.Open();
  prefill_->Stop();
  decode_->Stop();
  handoff_.reset();
}

worker::EngineRequest EnginePair::MakeRequest(uint32_t prompt_tokens, uint32_t max_tokens) {
  worker::EngineRequest request{.key = {{31, ++requests_made_}, 1},
                                .router = router,
                                .output_start = prompt_tokens,
                                .max_tokens = max_tokens};
  uint64_t state = requests_made_;
  for (uint32_t i = 0; i < prompt_tokens; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    request.tokens.push_back(static_cast<uint32_t>(state >> 33) % options_.model.vocabulary_size);
  }
  return request;
}

absl::Status EnginePair::Admit(const worker::EngineRequest& request) {
  return decode_->Admit({request, prefill_incarnation_}).status();
}

absl::Status EnginePair::AdmitLocal(const worker::EngineRequest& request) {
  return decode_->Admit({request, std::nullopt}).status();
}

absl::Status EnginePair::Prefill(const worker::EngineRequest& request) {
  return prefill_->Submit({request, kvstore::HandoffPeer{"decode:1", {41, 42}}});
}

absl::Status EnginePair::PrefillAlone(const worker::EngineRequest& request) {
  return prefill_->Submit({request, std::nullopt});
}

void EnginePair::Cancel(const worker::AttemptKey& key) {
  prefill_->Cancel(router, key);
  decode_->Cancel(router, key);
}

Heard EnginePair::Await(const worker::AttemptKey& key) {
  CHECK(routers_.WaitUntil([&] { return routers_.heard(key).over(); })) << key << " does not end";
  return routers_.heard(key);
}

std::vector<uint32_t> EnginePair::Reference(worker::EngineRequest request) const {
  FakeModel model(options_.model);
  const auto arena = MakeArena(model.kv_layout(), options_.prefill_blocks);
  kvstore::KvBlockPool pool(options_.prefill_blocks);
  runner::Runner runner(model, pool, arena->view(), {}, nullptr);
  runner::StepInbox inbox;
  inbox.add.push_back(worker::TakeSequenceRequest(request, runner::SequenceId{1}));
  std::vector<uint32_t> tokens;
  while (true) {
    const runner::StepOutbox outbox = runner.Step(absl::Now(), std::exchange(inbox, {}));
    CHECK(!outbox.idle);
    for (const runner::TokenOutput& output : outbox.tokens) {
      tokens.push_back(output.token.token);
      if (output.finish != runner::FinishReason::kNone) return tokens;
    }
  }
}

bool EnginePair::WaitUntilIdle() {
  return prefill_->WaitUntilIdle(absl::Seconds(10)) && decode_->WaitUntilIdle(absl::Seconds(10));
}

bool EnginePair::PoolsAreFree() const {
  for (const kvstore::KvBlockPool* pool : {&prefill_pool_, &decode_pool_}) {
    const kvstore::KvPoolCounts counts = pool->counts();
    if (counts.free != counts.total || counts.reserved != 0 || counts.held != 0) return false;
  }
  return prefill_->load().blocks_pinned == 0 && handoff_->open_at_source() == 0 &&
         handoff_->open_at_sink() == 0;
}

}  // namespace baton::fakes
