// What routers may send a worker: any bytes decode to an error, or to a request that a runner computes to its end. The
// runner CHECKs what it was promised.
//
// The first byte says whether the rest is a PrefillRequest or an AdmitRequest.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/check.h"
#include "kvstore/kv_arena.h"
#include "kvstore/kv_block_pool.h"
#include "runner/runner.h"
#include "tests/fakes/fake_model.h"
#include "worker/event_codec.h"

namespace {

using baton::fakes::FakeModel;
using baton::worker::EngineRequest;
namespace v1 = baton::v1;

constexpr uint32_t kVocabulary = 64;
constexpr uint32_t kContext = 48;
constexpr uint32_t kBlocks = 8;  // Of eight tokens: more than the context.

// Computes the request, token by token, to its end.
void Run(EngineRequest request) {
  static FakeModel& model = *new FakeModel(
      {.vocabulary_size = kVocabulary, .context_tokens = kContext, .block_tokens = 8});
  static const auto& arena = *baton::kvstore::KvArena::Create(model.kv_layout(), kBlocks)->release();
  baton::kvstore::KvBlockPool pool(kBlocks);
  baton::runner::Runner runner(model, pool, arena.view(), {}, nullptr);
  baton::runner::StepInbox inbox;
  const uint32_t first = request.next_position();
  const uint32_t remaining = request.remaining_tokens();
  inbox.add.push_back(baton::worker::TakeSequenceRequest(request, baton::runner::SequenceId{1}));
  for (uint32_t drawn = 0;;) {
    const auto outbox = runner.Step(absl::UnixEpoch(), std::exchange(inbox, {}));
    CHECK(!outbox.idle);
    CHECK(outbox.failures.empty());
    for (const auto& output : outbox.tokens) {
      CHECK_EQ(output.position, first + drawn);
      ++drawn;
      CHECK_LE(drawn, remaining);
      if (output.finish != baton::runner::FinishReason::kNone) return;
    }
  }
}

v1::EngineRequest LegalRequest() {
  v1::EngineRequest request;
  request.mutable_key()->set_request_id(std::string(16, 'k'));
  request.mutable_key()->set_attempt(1);
  request.set_router_incarnation(std::string(16, 'r'));
  for (uint32_t token = 1; token <= 20; ++token) request.add_tokens(token);
  request.set_output_start(18);
  request.set_max_tokens(10);
  request.mutable_sampling()->set_seed(7);
  request.mutable_sampling()->set_temperature(0.7f);
  request.mutable_sampling()->set_top_k(5);
  request.mutable_sampling()->set_top_p(0.9f);
  request.mutable_sampling()->set_min_p(0.01f);
  request.mutable_sampling()->set_repetition_penalty(1.1f);
  request.mutable_sampling()->set_presence_penalty(0.5f);
  (*request.mutable_sampling()->mutable_logit_bias())[3] = 1.5f;
  request.add_stop_token_ids(9);
  request.mutable_logprob_options()->set_logprobs(3);
  request.mutable_logprob_options()->set_prompt_logprobs(2);
  request.mutable_time_left()->set_seconds(3);
  return request;
}

}  // namespace

extern "C" void BatonFuzzSeeds(std::vector<std::string>* seeds) {
  v1::PrefillRequest prefill;
  *prefill.mutable_request() = LegalRequest();
  prefill.set_decode_address("127.0.0.1:50062");
  prefill.set_decode_incarnation(std::string(16, 'd'));
  seeds->push_back(std::string(1, '\0') + prefill.SerializeAsString());
  v1::AdmitRequest admit;
  *admit.mutable_request() = LegalRequest();
  admit.set_prefill_incarnation(std::string(16, 'p'));
  seeds->push_back(std::string(1, '\1') + admit.SerializeAsString());
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Protobuf writes a line about each string that is not UTF-8.
  static const bool quiet = (google::protobuf::SetLogHandler(nullptr), true);
  if (size == 0 || !quiet) return 0;
  const bool prefill = data[0] % 2 == 0;
  v1::PrefillRequest prefill_wire;
  v1::AdmitRequest admit_wire;
  google::protobuf::Message& wire =
      prefill ? static_cast<google::protobuf::Message&>(prefill_wire) : admit_wire;
  if (!wire.ParseFromArray(data + 1, static_cast<int>(size - 1))) return 0;
  if (prefill) (void)baton::worker::DecodeHandoffPeer(prefill_wire).ok();
  auto request = baton::worker::DecodeEngineRequest(
      prefill ? prefill_wire.request() : admit_wire.request(),
      {.vocabulary_size = kVocabulary, .context_tokens = kContext});
  if (request.ok()) Run(*std::move(request));
  return 0;
}
