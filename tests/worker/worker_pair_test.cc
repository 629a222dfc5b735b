// Whole workers in one process, over fake models: their services, real links of each transport, and a router's end of the
// Attach streams.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/grpc_server.h"
#include "baton/v1/decode_worker_service.grpc.pb.h"
#include "baton/v1/prefill_worker_service.grpc.pb.h"
#include "decode_worker/decode_worker.h"
#include "prefill_worker/prefill_worker.h"
#include "tests/fakes/fake_model.h"
#include "tests/fakes/fake_router.h"
#include "tests/fakes/gated_model.h"
#include "tests/fakes/health_check.h"

namespace baton::worker {
namespace {

using fakes::FakeModel;
using fakes::FakeModelOptions;
using fakes::FakeRouter;
using fakes::GatedModel;
using fakes::Told;

FakeModelOptions ModelOptions() { return {.context_tokens = 512, .block_tokens = 8}; }

struct Transport {
  std::string name;
  std::vector<std::string> kv_transports;
  bool loopback = false;
};

class WorkerPair {
 public:
  explicit WorkerPair(const Transport& transport = {"Shm", {"shm"}})
      : transport_(transport) {
    StartPrefill();
    StartDecode();
    prefill_calls_ = v1::PrefillWorkerService::NewStub(base::OpenChannel(prefill_->address()));
    decode_calls_ = v1::DecodeWorkerService::NewStub(base::OpenChannel(decode_->address()));
    EXPECT_TRUE(router.WaitUntil([&] { return router.loads().size() >= 2; }));
  }

  ~WorkerPair() {
    prefill_gate.Open();
    decode_gate.Open();
    prefill_.reset();
    decode_.reset();
  }

  v1::EngineRequest MakeRequest(uint32_t prompt, uint32_t max_tokens) {
    v1::EngineRequest request;
    request.mutable_key()->set_request_id(base::Id128{5, ++made_}.ToBytes());
    request.mutable_key()->set_attempt(1);
    request.set_router_incarnation(router.incarnation().ToBytes());
    for (uint32_t i = 0; i < prompt; ++i) {
      request.add_tokens(static_cast<uint32_t>((i * 31 + made_ * 7) % 256));
    }
    request.set_output_start(prompt);
    request.set_max_tokens(max_tokens);
    request.mutable_sampling()->set_seed(made_);
    request.mutable_sampling()->set_temperature(0.8f);
    return request;
  }

  grpc::Status Admit(const v1::EngineRequest& request, bool local = false) {
    v1::AdmitRequest wire;
    *wire.mutable_request() = request;
    if (!local) wire.set_prefill_incarnation(prefill_->incarnation().ToBytes());
    v1::AdmitResponse response;
    grpc::ClientContext context;
    return decode_calls_->Admit(&context, wire, &response);
  }

  grpc::Status Prefill(const v1::EngineRequest& request, bool hand_over = true) {
    v1::PrefillRequest wire;
    *wire.mutable_request() = request;
    if (hand_over) {
      wire.set_decode_address(decode_address_);
      wire.set_decode_incarnation(decode_incarnation_);
    }
    v1::PrefillResponse response;
    grpc::ClientContext context;
    return prefill_calls_->Prefill(&context, wire, &response);
  }

  Told from_prefill(const v1::EngineRequest& request) const {
    return router.told(prefill_incarnation_, KeyOf(request));
  }
  Told from_decode(const v1::EngineRequest& request) const {
    return router.told(decode_incarnation_, KeyOf(request));
  }

  static kvstore::HandoffKey KeyOf(const v1::EngineRequest& request) {
    return {*base::Id128::FromBytes(request.key().request_id()), request.key().attempt()};
  }

  // Every block of the worker is free, and so its load says.
  static bool AllFree(const Worker& worker) {
    const WorkerLoad load = worker.load();
    return load.blocks_held == 0 && load.blocks_pinned == 0 && load.blocks_reserved == 0 &&
           load.queued_requests == 0 && load.running_sequences == 0;
  }
  void ExpectAllGivenBack() {
    EXPECT_TRUE(router.WaitUntil([&] { return AllFree(*prefill_) && AllFree(*decode_); }));
  }

  WorkerConfig Config(WorkerRole role) const {
    WorkerConfig config{.role = role, .model_path = "fake", .block_tokens = 8};
    config.chunk_tokens = 16;
    config.running_max = 32;
    config.arena_bytes = 4096 * gate_layout().block_bytes();
    config.routers = {router.address()};
    config.kv_transports = transport_.kv_transports;
    return config;
  }

  FakeRouter router;
  FakeModel prefill_model{ModelOptions()};
  FakeModel decode_model{ModelOptions()};
  GatedModel prefill_gate{prefill_model};
  GatedModel decode_gate{decode_model};
  base::Metrics prefill_metrics;
  base::Metrics decode_metrics;

  prefill_worker::PrefillWorker& prefill() { return *prefill_; }
  decode_worker::DecodeWorker& decode() { return *decode_; }
  void KillPrefill() { prefill_.reset(); }
  void KillDecode() { decode_.reset(); }

 private:
  kernels::KvLayout gate_layout() const { return prefill_model.kv_layout(); }

  WorkerModel View(model::Model& model) const {
    return {.model = &model, .layout = gate_layout(), .name = "fake", .cpu_level = "fake"};
  }
  kvstore::LoopbackRegistry* registry() { return transport_.loopback ? &registry_ : nullptr; }

  void StartPrefill() {
    auto worker = prefill_worker::PrefillWorker::Start(
        Config(WorkerRole::kPrefill), View(prefill_gate), prefill_metrics, registry());
    CHECK_OK(worker.status());
    prefill_ = *std::move(worker);
    prefill_incarnation_ = prefill_->incarnation().ToBytes();
  }
  void StartDecode() {
    auto worker = decode_worker::DecodeWorker::Start(
        Config(WorkerRole::kDecode), View(decode_gate), decode_metrics, registry());
    CHECK_OK(worker.status());
    decode_ = *std::move(worker);
    decode_address_ = decode_->address();
    decode_incarnation_ = decode_->incarnation().ToBytes();
  }

  const Transport transport_;
  kvstore::LoopbackRegistry registry_;
  std::unique_ptr<prefill_worker::PrefillWorker> prefill_;
  std::unique_ptr<decode_worker::DecodeWorker> decode_;
  std::unique_ptr<v1::PrefillWorkerService::Stub> prefill_calls_;
  std::unique_ptr<v1::DecodeWorkerService::Stub> decode_calls_;
  std::string prefill_incarnation_, decode_incarnation_, decode_address_;
  uint64_t made_ = 0;
};

class EveryTransport : public testing::TestWithParam<Transport> {};

TEST_P(EveryTransport, HandedOverEqualsLocal) {
  WorkerPair pair(GetParam());
  std::vector<v1::EngineRequest> handed, local;
  for (const uint32_t prompt : {1, 8, 17, 100}) {
    for (const uint32_t output : {2, 25}) {
      v1::EngineRequest request = pair.MakeRequest(prompt, output);
      handed.push_back(request);
      request.mutable_key()->set_request_id(pair.MakeRequest(1, 1).key().request_id());
      local.push_back(request);
    }
  }
  for (size_t i = 0; i < handed.size(); ++i) {
    const grpc::Status admitted = pair.Admit(handed[i]);
    ASSERT_TRUE(admitted.ok()) << admitted.error_message();
    const grpc::Status prefilled = pair.Prefill(handed[i]);
    ASSERT_TRUE(prefilled.ok()) << prefilled.error_message();
    ASSERT_TRUE(pair.Admit(local[i], /*local=*/true).ok());
  }
  for (size_t i = 0; i < handed.size(); ++i) {
    ASSERT_TRUE(pair.router.WaitUntil([&] {
      return pair.from_decode(handed[i]).over() && pair.from_decode(local[i]).over() &&
             !pair.from_prefill(handed[i]).events.empty();
    })) << "request " << i;
    const Told first = pair.from_prefill(handed[i]);
    const Told rest = pair.from_decode(handed[i]);
    const Told alone = pair.from_decode(local[i]);
    EXPECT_FALSE(rest.error.has_value()) << rest.error->message();
    EXPECT_EQ(rest.tokens.size(), handed[i].max_tokens());
    EXPECT_EQ(rest.tokens, alone.tokens) << "request " << i;
    ASSERT_EQ(first.tokens.size(), 1u);
    EXPECT_EQ(first.tokens[0], rest.tokens[0]);
  }
  pair.ExpectAllGivenBack();
}

TEST(WorkerPair, MetricsShowWhatHappened) {
  WorkerPair pair;
  const v1::EngineRequest request = pair.MakeRequest(40, 10);
  ASSERT_TRUE(pair.Admit(request).ok());
  ASSERT_TRUE(pair.Prefill(request).ok());
  ASSERT_TRUE(pair.router.WaitUntil([&] { return pair.from_decode(request).over(); }));
  pair.ExpectAllGivenBack();
  const std::string prefill = pair.prefill_metrics.Text();
  for (const char* line :
       {"baton_worker_prefill_tokens_total{role=\"prefill\"} 40\n",
        "baton_worker_requests_total{outcome=\"received\",role=\"prefill\"} 1\n",
        "baton_worker_requests_total{outcome=\"handed_over\",role=\"prefill\"} 1\n",
        "baton_worker_step_seconds_count{role=\"prefill\",rows=\"prefill\"} 3\n",
        "baton_worker_handoff_seconds_count{role=\"prefill\"} 1\n"}) {
    EXPECT_NE(prefill.find(line), std::string::npos) << line << "not in\n" << prefill;
  }
  const std::string decode = pair.decode_metrics.Text();
  for (const char* line : {"baton_worker_decode_rows_total{role=\"decode\"} 9\n",
                           "baton_worker_requests_total{outcome=\"finished\",role=\"decode\"} 1\n",
                           "baton_worker_first_decode_seconds_count{role=\"decode\"} 1\n",
                           "baton_worker_preemptions_total{role=\"decode\"} 0\n"}) {
    EXPECT_NE(decode.find(line), std::string::npos) << line << "not in\n" << decode;
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, EveryTransport,
                         testing::Values(Transport{"Shm", {"shm"}}, Transport{"Grpc", {"grpc"}},
                                         Transport{"Loopback", {"grpc"}, true}),
                         [](const auto& info) { return info.param.name; });

TEST(WorkerPair, StatusCodesOfTheServices) {
  WorkerPair pair;
  v1::EngineRequest request = pair.MakeRequest(10, 5);
  request.set_tokens(3, 256);
  EXPECT_EQ(pair.Admit(request).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(pair.Prefill(request).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  request = pair.MakeRequest(10, 5);
  EXPECT_EQ(pair.Prefill(request, /*hand_over=*/false).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  request.set_router_incarnation(base::Id128{1, 2}.ToBytes());
  EXPECT_EQ(pair.Admit(request).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(pair.Prefill(request).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  const v1::EngineRequest one = pair.MakeRequest(10, 1);
  EXPECT_TRUE(pair.Prefill(one, /*hand_over=*/false).ok());
  EXPECT_EQ(pair.Prefill(one, /*hand_over=*/false).error_code(), grpc::StatusCode::ALREADY_EXISTS);
  ASSERT_TRUE(pair.router.WaitUntil([&] { return pair.from_prefill(one).over(); }));
  EXPECT_EQ(pair.from_prefill(one).finish, v1::FINISH_REASON_LENGTH);
  pair.ExpectAllGivenBack();
}

TEST(WorkerPair, ACancelReachesBothEngines) {
  WorkerPair pair;
  pair.decode_gate.Close();
  const v1::EngineRequest request = pair.MakeRequest(40, 400);
  ASSERT_TRUE(pair.Admit(request).ok());
  ASSERT_TRUE(pair.Prefill(request).ok());
  pair.decode_gate.WaitUntilAtGate();
  pair.router.SendCancel(WorkerPair::KeyOf(request));
  pair.decode_gate.Open();
  pair.ExpectAllGivenBack();
  EXPECT_FALSE(pair.from_decode(request).over()) << "nothing more is said of what was cancelled";
}

TEST(WorkerPair, AnAdmissionWhosePrefillNeverComesIsGivenBackOnCancel) {
  WorkerPair pair;
  for (int i = 0; i < 50; ++i) {
    const v1::EngineRequest request = pair.MakeRequest(100, 400);
    // Full for a moment, if cancels are slower than admissions.
    ASSERT_TRUE(pair.router.WaitUntil([&] { return pair.Admit(request).ok(); })) << "at " << i;
    pair.router.SendCancel(WorkerPair::KeyOf(request));
  }
  pair.ExpectAllGivenBack();
}

TEST(WorkerPair, APrefillWithoutAdmissionEndsInOneError) {
  WorkerPair pair;
  const v1::EngineRequest request = pair.MakeRequest(40, 5);
  ASSERT_TRUE(pair.Prefill(request).ok());
  ASSERT_TRUE(pair.router.WaitUntil([&] { return pair.from_prefill(request).over(); }));
  ASSERT_TRUE(pair.from_prefill(request).error.has_value());
  EXPECT_EQ(pair.from_prefill(request).error->code(),
            static_cast<uint32_t>(absl::StatusCode::kUnavailable));
  pair.ExpectAllGivenBack();
}

TEST(WorkerPair, ADecodeWorkerThatGoesAwayFreesItsPrefillWorkersBlocks) {
  WorkerPair pair;
  pair.prefill_gate.Close();
  const v1::EngineRequest request = pair.MakeRequest(100, 5);
  ASSERT_TRUE(pair.Admit(request).ok());
  ASSERT_TRUE(pair.Prefill(request).ok());
  pair.prefill_gate.WaitUntilAtGate();
  pair.prefill_gate.LetOneStep();
  pair.KillDecode();
  pair.prefill_gate.Open();
  ASSERT_TRUE(pair.router.WaitUntil([&] { return pair.from_prefill(request).over(); }));
  EXPECT_TRUE(pair.from_prefill(request).error.has_value());
  EXPECT_TRUE(pair.router.WaitUntil([&] { return pair.AllFree(pair.prefill()); }));
}

TEST(WorkerPair, APrefillWorkerThatGoesAwayFreesItsDecodeWorkersBlocks) {
  WorkerPair pair;
  pair.prefill_gate.Close();
  const v1::EngineRequest request = pair.MakeRequest(100, 5);
  ASSERT_TRUE(pair.Admit(request).ok());
  ASSERT_TRUE(pair.Prefill(request).ok());
  pair.prefill_gate.WaitUntilAtGate();
  pair.prefill_gate.LetOneStep();
  // The first chunk is over: the link is up and is lost with its worker.
  ASSERT_TRUE(pair.router.WaitUntil([&] { return pair.decode().load().blocks_held > 0; }));
  pair.prefill_gate.Open();
  pair.KillPrefill();
  ASSERT_TRUE(pair.router.WaitUntil([&] { return pair.from_decode(request).over(); }));
  EXPECT_TRUE(pair.router.WaitUntil([&] { return pair.AllFree(pair.decode()); }));
}

TEST(WorkerPair, HealthSaysServingUntilItDrainsAndTheRunningRequestFinishes) {
  WorkerPair pair;
  const std::string address = pair.decode().address();
  EXPECT_EQ(fakes::HealthOf(address, ""), fakes::Health::kServing);
  EXPECT_EQ(fakes::HealthOf(address, "baton.v1.DecodeWorkerService"), fakes::Health::kServing);
  pair.decode_gate.Close();
  const v1::EngineRequest running = pair.MakeRequest(10, 100);
  ASSERT_TRUE(pair.Admit(running, /*local=*/true).ok());
  pair.decode_gate.WaitUntilAtGate();
  std::thread drain([&] { EXPECT_TRUE(pair.decode().Drain(absl::Seconds(10))); });
  ASSERT_TRUE(pair.router.WaitUntil([&] { return pair.router.draining_count() == 1; }));
  EXPECT_EQ(fakes::HealthOf(address, ""), fakes::Health::kNotServing);
  EXPECT_EQ(pair.Admit(pair.MakeRequest(10, 5), true).error_code(), grpc::StatusCode::UNAVAILABLE);
  pair.decode_gate.Open();
  drain.join();
  EXPECT_EQ(pair.from_decode(running).tokens.size(), 100u) << "every token was told";
  EXPECT_EQ(pair.from_decode(running).finish, v1::FINISH_REASON_LENGTH);
}

TEST(WorkerPair, ADrainThatRunsOutOfTimeEndsTheRestWithUnavailable) {
  WorkerPair pair;
  const v1::EngineRequest running = pair.MakeRequest(10, 500);
  ASSERT_TRUE(pair.Admit(running).ok());  // Its prefill never comes.
  EXPECT_FALSE(pair.decode().Drain(absl::ZeroDuration()));
  ASSERT_TRUE(pair.from_decode(running).error.has_value());
  EXPECT_EQ(pair.from_decode(running).error->code(),
            static_cast<uint32_t>(absl::StatusCode::kUnavailable));
}

TEST(WorkerPair, ConfigurationsThatCannotBeAreRefusedAtStart) {
  WorkerPair pair;
  FakeModel model(ModelOptions());
  base::Metrics metrics;
  const WorkerModel view{.model = &model, .layout = model.kv_layout(), .name = "fake"};
  WorkerConfig config = pair.Config(WorkerRole::kDecode);
  config.running_max = 1024;
  EXPECT_EQ(decode_worker::DecodeWorker::Start(config, view, metrics, nullptr).status().code(),
            absl::StatusCode::kInvalidArgument);
  config = pair.Config(WorkerRole::kDecode);
  config.arena_bytes = 1;
  EXPECT_EQ(decode_worker::DecodeWorker::Start(config, view, metrics, nullptr).status().code(),
            absl::StatusCode::kInvalidArgument);
  config = pair.Config(WorkerRole::kPrefill);
  const std::string taken = pair.decode().address();
  config.port = static_cast<uint16_t>(std::stoi(taken.substr(taken.rfind(':') + 1)));
  EXPECT_EQ(prefill_worker::PrefillWorker::Start(config, view, metrics, nullptr).status().code(),
            absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace baton::worker
