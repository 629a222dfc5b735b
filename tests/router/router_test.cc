// A whole router in this process, over real gRPC, between a real client and fake workers.

#include "router/router.h"

#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"
#include "tests/router/fake_text.h"
#include "tests/router/fake_worker.h"

namespace baton::router {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr auto kFailedPrecondition = grpc::StatusCode::FAILED_PRECONDITION;
constexpr auto kInvalidArgument = grpc::StatusCode::INVALID_ARGUMENT;
constexpr auto kExhausted = grpc::StatusCode::RESOURCE_EXHAUSTED;
constexpr auto kUnavailable = grpc::StatusCode::UNAVAILABLE;

struct Answer {
  std::string text;
  std::vector<uint32_t> tokens;
  std::vector<v1::PositionLogprobs> logprobs, prompt_logprobs;
  std::string request_id;
  v1::GenerateResponse last;
  grpc::Status status;
  absl::Duration took;
};

// One call of a client, read at the test's own pace.
class Call {
 public:
  Call(v1::InferenceService::Stub& stub, const v1::GenerateRequest& request,
       absl::Duration timeout = absl::InfiniteDuration())
      : started_(absl::Now()) {
    if (timeout != absl::InfiniteDuration()) {
      context_.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
    }
    reader_ = stub.Generate(&context_, request);
  }

  // False at the end.
  bool Read() {
    v1::GenerateResponse piece;
    if (!reader_->Read(&piece)) return false;
    answer_.text += piece.text();
    EXPECT_EQ(piece.position(), answer_.tokens.size());
    answer_.tokens.insert(answer_.tokens.end(), piece.token_ids().begin(), piece.token_ids().end());
    for (const auto& entry : piece.logprobs()) answer_.logprobs.push_back(entry);
    for (const auto& entry : piece.prompt_logprobs()) answer_.prompt_logprobs.push_back(entry);
    answer_.request_id += piece.request_id();
    answer_.last = piece;
    return true;
  }

  void Cancel() { context_.TryCancel(); }

  const Answer& ReadAll() {
    while (Read()) {
    }
    answer_.status = reader_->Finish();
    answer_.took = absl::Now() - started_;
    return answer_;
  }

  const Answer& answer() const { return answer_; }

 private:
  absl::Time started_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> reader_;
  Answer answer_;
};

std::string Alphabet(size_t length) {
  std::string text;
  for (size_t i = 0; i < length; ++i) text.push_back(static_cast<char>('a' + i % 26));
  return text;
}

v1::GenerateRequest Request(int64_t max_tokens, const std::string& text = "Once upon a time") {
  v1::GenerateRequest request;
  request.set_text(text);
  request.mutable_stop_conditions()->set_max_tokens(max_tokens);
  return request;
}

class RouterTest : public testing::Test {
 protected:
  static RouterConfig TestConfig() {
    RouterConfig config;
    config.port = 0;
    config.worker_port = 0;
    config.worker_wait = absl::ZeroDuration();
    return config;
  }

  void Start(const RouterConfig& config = TestConfig(),
             std::shared_ptr<const ServedModel> model = FakeModel()) {
    auto router = Router::Start(config, std::move(model), metrics_);
    ASSERT_TRUE(router.ok()) << router.status();
    router_ = *std::move(router);
    channel_ = base::OpenChannel(router_->client_address());
    stub_ = v1::InferenceService::NewStub(channel_);
  }

  void TearDown() override {
    workers_.clear();
    router_.reset();
  }

  FakeWorker& AddWorker(FakeWorkerOptions options = {}) {
    const size_t reported = CountReported();
    workers_.push_back(std::make_unique<FakeWorker>(std::move(options), router_->worker_address()));
    // Ready once its first report is here.
    WaitFor([&] { return CountReported() > reported; });
    return *workers_.back();
  }
  FakeWorker& AddDecode(FakeWorkerOptions options = {}) {
    options.decodes = true;
    return AddWorker(std::move(options));
  }

  size_t CountReported() {
    size_t count = 0;
    for (const WorkerSnapshot& worker : router_->Status().workers) {
      count += worker.report.sequence_number > 0;
    }
    return count;
  }

  // Polls: for what has no event to wait on.
  template <typename Condition>
  bool WaitFor(Condition condition) {
    const absl::Time until = absl::Now() + absl::Seconds(10);
    while (!condition()) {
      if (absl::Now() > until) return false;
      absl::SleepFor(absl::Milliseconds(2));
    }
    return true;
  }

  Answer Ask(const v1::GenerateRequest& request, absl::Duration timeout = absl::Seconds(20)) {
    return Call(*stub_, request, timeout).ReadAll();
  }

  double Metric(const std::string& line_start) {
    const std::string text = metrics_.Text();
    const size_t at = text.find("\n" + line_start + " ");
    return at == std::string::npos ? -1 : std::stod(text.substr(at + line_start.size() + 2));
  }

  base::Metrics metrics_;
  std::unique_ptr<Router> router_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::InferenceService::Stub> stub_;
  std::vector<std::unique_ptr<FakeWorker>> workers_;
};

TEST_F(RouterTest, StreamsAnAnswer) {
  Start();
  FakeWorker& prefill = AddWorker();
  FakeWorker& decode = AddDecode();
  v1::GenerateRequest request = Request(40);
  request.mutable_sampling()->set_seed(77);
  request.mutable_stop_conditions()->add_stop_token_ids(9);
  const Answer answer = Ask(request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.text, Alphabet(40));
  EXPECT_EQ(answer.tokens.size(), 40u);
  EXPECT_EQ(answer.request_id.size(), 32u);
  EXPECT_EQ(answer.last.finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(answer.last.usage().prompt_tokens(), 16u);
  EXPECT_EQ(answer.last.usage().cached_tokens(), 16u);
  EXPECT_EQ(answer.last.usage().completion_tokens(), 40u);
  EXPECT_EQ(answer.last.usage().seed(), 77u);
  const v1::Timings& timings = answer.last.timings();
  EXPECT_EQ(timings.prefill_queue().nanos(), 1000000);
  EXPECT_EQ(timings.prefill().nanos(), 2000000);
  EXPECT_EQ(timings.handoff().nanos(), 3000000);
  EXPECT_EQ(timings.first_decode().nanos(), 4000000);
  EXPECT_TRUE(timings.has_text() && timings.has_queue() && timings.has_time_to_first_token());
  EXPECT_GT(timings.total().nanos() + timings.total().seconds(), 0);

  ASSERT_EQ(prefill.calls().size(), 1u);
  const v1::EngineRequest sent = prefill.calls()[0];
  EXPECT_EQ(decode.FirstCall().key().request_id(), sent.key().request_id());
  EXPECT_EQ(sent.key().attempt(), 1u);
  EXPECT_EQ(sent.output_start(), 16u);
  EXPECT_EQ(sent.sampling().seed(), 77u);
  EXPECT_EQ(sent.max_tokens(), 40u);
  EXPECT_THAT(sent.stop_token_ids(), testing::ElementsAre(9, kFakeEos));
  EXPECT_TRUE(sent.has_time_left());
  EXPECT_FALSE(decode.was_cancelled(sent.key()));
}

TEST_F(RouterTest, ASeedIsDrawnAndReported) {
  Start();
  FakeWorker& prefill = AddWorker();
  AddDecode();
  const Answer answer = Ask(Request(2));
  EXPECT_NE(answer.last.usage().seed(), 0u);
  EXPECT_EQ(prefill.FirstCall().sampling().seed(), answer.last.usage().seed());
}

TEST_F(RouterTest, ChatComputesOnTheTemplatesTokens) {
  Start();
  FakeWorker& prefill = AddWorker();
  AddDecode();
  v1::ChatRequest request;
  v1::ChatMessage& message = *request.add_messages();
  message.set_role("user");
  message.set_content("hi");
  request.mutable_stop_conditions()->set_max_tokens(3);
  grpc::ClientContext context;
  auto reader = stub_->Chat(&context, request);
  v1::ChatResponse piece;
  std::string text;
  while (reader->Read(&piece)) text += piece.piece().text();
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(text, "abc");
  std::string prompt;
  const v1::EngineRequest sent = prefill.FirstCall();
  for (const uint32_t token : sent.tokens()) prompt.push_back(static_cast<char>(token));
  EXPECT_EQ(prompt, "[user]hi[assistant]");

  grpc::ClientContext tokenize_context;
  v1::TokenizeRequest tokenize;
  *tokenize.mutable_chat()->add_messages() = message;
  v1::TokenizeResponse tokens;
  ASSERT_TRUE(stub_->Tokenize(&tokenize_context, tokenize, &tokens).ok());
  EXPECT_EQ(tokens.rendered_text(), prompt);
  EXPECT_THAT(tokens.token_ids(), testing::ElementsAreArray(sent.tokens()));
}

TEST_F(RouterTest, ATemplateThatRefusesIsTheClientsError) {
  Start();
  v1::ChatRequest request;
  request.add_messages()->set_role("assistant");
  grpc::ClientContext context;
  auto reader = stub_->Chat(&context, request);
  v1::ChatResponse piece;
  EXPECT_FALSE(reader->Read(&piece));
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), kInvalidArgument);
  EXPECT_THAT(status.error_message(), HasSubstr("the assistant must not speak first"));
}

TEST_F(RouterTest, OneTokenNeedsNoDecodeWorker) {
  Start();
  FakeWorker& prefill = AddWorker();
  FakeWorker& decode = AddDecode();
  const Answer answer = Ask(Request(1));
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.text, "a");
  EXPECT_EQ(answer.last.finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(prefill.calls().size(), 1u);
  EXPECT_THAT(decode.calls(), IsEmpty());
}

TEST_F(RouterTest, TwoAndThreeTokensAreExactlySoMany) {
  Start();
  AddWorker();
  AddDecode();
  for (const int64_t count : {2, 3}) EXPECT_EQ(Ask(Request(count)).text, Alphabet(count));
}

TEST_F(RouterTest, EndOfSequenceAtTheFirstTokenEndsItThere) {
  Start();
  AddWorker({.script = {kFakeEos}});
  FakeWorker& decode = AddDecode({.script = {kFakeEos}});
  const Answer answer = Ask(Request(40));
  ASSERT_TRUE(answer.status.ok());
  EXPECT_EQ(answer.text, "");
  EXPECT_EQ(answer.last.finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(answer.last.usage().completion_tokens(), 1u);
  EXPECT_TRUE(decode.WaitForCancel(decode.FirstCall().key()));
}

TEST_F(RouterTest, IgnoreEosLeavesTheModelsEndOut) {
  Start();
  FakeWorker& prefill = AddWorker();
  AddDecode();
  v1::GenerateRequest request = Request(2);
  request.mutable_stop_conditions()->set_ignore_eos(true);
  EXPECT_TRUE(Ask(request).status.ok());
  EXPECT_THAT(prefill.FirstCall().stop_token_ids(), IsEmpty());
}

TEST_F(RouterTest, AStopStringStopsBothWorkers) {
  Start();
  FakeWorker& prefill = AddWorker();
  FakeWorker& decode = AddDecode();
  v1::GenerateRequest request = Request(500);
  request.mutable_stop_conditions()->add_stop("fgh");
  const Answer answer = Ask(request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.text, "abcde");
  EXPECT_EQ(answer.last.finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(answer.last.usage().completion_tokens(), 8u);
  EXPECT_TRUE(prefill.WaitForCancel(prefill.FirstCall().key()));
  EXPECT_TRUE(decode.WaitForCancel(prefill.FirstCall().key()));
}

TEST_F(RouterTest, ACancelReachesBothWorkers) {
  Start();
  FakeWorker& prefill = AddWorker();
  FakeWorker& decode = AddDecode();
  Call call(*stub_, Request(1000));
  ASSERT_TRUE(call.Read());
  ASSERT_TRUE(prefill.WaitForCalls(1));
  call.Cancel();
  EXPECT_EQ(call.ReadAll().status.error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(prefill.WaitForCancel(prefill.FirstCall().key()));
  EXPECT_TRUE(decode.WaitForCancel(prefill.FirstCall().key()));
  EXPECT_TRUE(
      WaitFor([&] { return Metric("baton_router_requests_total{outcome=\"cancelled\"}") == 1; }));
  EXPECT_TRUE(WaitFor([&] { return router_->Status().requests_running == 0; }));
}

TEST_F(RouterTest, ADeadlineReachesBothWorkers) {
  Start();
  FakeWorker& prefill = AddWorker({.answers = false});
  FakeWorker& decode = AddDecode({.answers = false});
  const Answer answer = Ask(Request(1000), absl::Milliseconds(300));
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  ASSERT_TRUE(prefill.WaitForCalls(1));
  EXPECT_TRUE(prefill.WaitForCancel(prefill.FirstCall().key()));
  EXPECT_TRUE(decode.WaitForCancel(prefill.FirstCall().key()));
  EXPECT_TRUE(WaitFor(
      [&] { return Metric("baton_router_requests_total{outcome=\"deadline_exceeded\"}") == 1; }));
}

TEST_F(RouterTest, BadInputIsRefusedOverTheWire) {
  Start();
  FakeWorker& prefill = AddWorker({.context_tokens = 100});
  AddDecode({.context_tokens = 100});
  grpc::Status status = Ask(Request(0)).status;
  EXPECT_EQ(status.error_code(), kInvalidArgument);
  EXPECT_THAT(status.error_message(), HasSubstr("max_tokens is 0"));
  // The workers' context is smaller than the model's.
  status = Ask(Request(10, std::string(95, 'x'))).status;
  EXPECT_EQ(status.error_code(), kInvalidArgument);
  EXPECT_THAT(status.error_message(), HasSubstr("at most 5"));
  status = Ask(Request(1, std::string(100, 'x'))).status;
  EXPECT_EQ(status.error_code(), kInvalidArgument);
  EXPECT_THAT(status.error_message(), HasSubstr("100"));
  status = Ask(Request(1, std::string(2000, 'x'))).status;
  EXPECT_EQ(status.error_code(), kInvalidArgument);
  EXPECT_THAT(status.error_message(), HasSubstr("2000"));
  EXPECT_TRUE(Ask(Request(1, std::string(99, 'x'))).status.ok());
  EXPECT_EQ(prefill.calls().size(), 1u);
  EXPECT_EQ(Metric("baton_router_requests_total{outcome=\"invalid\"}"), 4);
}

TEST_F(RouterTest, TextThatIsNotUtf8IsRefusedByName) {
  Start();
  grpc::GenericStub raw(channel_);
  const auto call = [&](const std::string& method, const std::string& bytes) {
    grpc::ClientContext context;
    const grpc::Slice slice(bytes);
    const grpc::ByteBuffer request(&slice, 1);
    grpc::ByteBuffer response;
    grpc::Status status;
    absl::Notification done;
    raw.UnaryCall(&context, "/baton.v1.InferenceService/" + method, grpc::StubOptions(), &request,
                  &response, [&](grpc::Status ended) {
                    status = std::move(ended);
                    done.Notify();
                  });
    done.WaitForNotification();
    EXPECT_EQ(status.error_code(), kInvalidArgument) << method;
    return status.error_message();
  };
  EXPECT_THAT(call("Generate", "\x12\x03h\xFF\xFE"),
              HasSubstr("text is not valid UTF-8 at byte 1"));
  EXPECT_THAT(call("Generate", "\x12\x02hi\x2A\x03\x12\x01\x80"),
              HasSubstr("stop_conditions.stop is not valid UTF-8 at byte 0"));
  EXPECT_THAT(call("Chat", "\x12\x03\x12\x01\xC3"), HasSubstr("messages.content is not valid"));
  EXPECT_THAT(call("Tokenize", "\x12\x01\xFF"), HasSubstr("text is not valid"));
  EXPECT_THAT(call("Detokenize", "\x0A\x01\xFF"), HasSubstr("model is not valid"));
  EXPECT_EQ(Metric("baton_router_requests_total{outcome=\"invalid\"}"), 3);
  EXPECT_THAT(call("Generate", "\xFF\xFF"), HasSubstr("baton.v1.GenerateRequest"));
  EXPECT_THAT(call("Generate", "\x22\x01\xFF"), HasSubstr("sampling is malformed"));
}

// Half-closed before any message; a cancel that overtakes the message looks the same.
TEST_F(RouterTest, ACallWithoutARequestIsRefused) {
  Start();
  for (const std::string method : {"Generate", "Chat", "Tokenize", "Detokenize"}) {
    struct Silent final : grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
      void OnDone(const grpc::Status& ended) override {
        status = ended;
        done.Notify();
      }
      grpc::Status status;
      absl::Notification done;
    } silent;
    grpc::ClientContext context;
    grpc::GenericStub raw(channel_);
    raw.PrepareBidiStreamingCall(&context, "/baton.v1.InferenceService/" + method,
                                 grpc::StubOptions(), &silent);
    silent.StartWritesDone();
    silent.StartCall();
    silent.done.WaitForNotification();
    EXPECT_EQ(silent.status.error_code(), kInvalidArgument) << method;
    EXPECT_THAT(silent.status.error_message(), HasSubstr("without a request")) << method;
  }
}

TEST_F(RouterTest, LogprobsCarryBytesAndPromptLogprobsComeFirst) {
  Start();
  FakeWorker& prefill = AddWorker({.answers = false});
  FakeWorker& decode = AddDecode({.answers = false});
  v1::GenerateRequest request = Request(2, "xy");
  request.mutable_logprob_options()->set_logprobs(1);
  request.mutable_logprob_options()->set_prompt_logprobs(0);
  Call call(*stub_, request);
  ASSERT_TRUE(decode.WaitForCalls(1) && prefill.WaitForCalls(1));
  // The decode worker is first to speak: what it says waits for the prompt's log-probabilities.
  v1::TokenEvent both;
  *both.mutable_key() = prefill.calls()[0].key();
  for (const uint32_t token : {'a', 'b'}) {
    both.add_tokens(token);
    v1::PositionLogprobs& logprobs = *both.add_logprobs();
    logprobs.mutable_chosen()->set_token_id(token);
    logprobs.mutable_chosen()->set_logprob(-1);
    logprobs.add_top()->set_token_id('z');
  }
  both.set_finish_reason(v1::FINISH_REASON_LENGTH);
  decode.Send(both);
  v1::TokenEvent first = prefill.FirstTokenOf(prefill.calls()[0]);
  first.add_prompt_logprobs();
  first.add_prompt_logprobs()->mutable_chosen()->set_token_id('y');
  first.add_logprobs()->mutable_chosen()->set_token_id('a');
  prefill.Send(first);
  const Answer& answer = call.ReadAll();
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  ASSERT_EQ(answer.prompt_logprobs.size(), 2u);
  EXPECT_FALSE(answer.prompt_logprobs[0].has_chosen());
  EXPECT_EQ(answer.prompt_logprobs[1].chosen().token_bytes(), "y");
  ASSERT_EQ(answer.logprobs.size(), 2u);
  EXPECT_EQ(answer.logprobs[1].chosen().token_bytes(), "b");
  EXPECT_EQ(answer.logprobs[1].top(0).token_bytes(), "z");
  EXPECT_EQ(answer.last.usage().cached_tokens(), 16u);
}

TEST_F(RouterTest, OldAttemptsAndStrangersAreNotHeard) {
  Start();
  FakeWorker& prefill = AddWorker({.answers = false});
  FakeWorker& decode = AddDecode({.answers = false});
  Call call(*stub_, Request(2));
  ASSERT_TRUE(prefill.WaitForCalls(1) && decode.WaitForCalls(1));
  const v1::EngineRequest request = prefill.calls()[0];
  v1::TokenEvent stale = prefill.FirstTokenOf(request);
  stale.mutable_key()->set_attempt(7);
  stale.set_tokens(0, 'X');
  prefill.Send(stale);
  stale.mutable_key()->set_attempt(1);
  stale.mutable_key()->set_request_id(std::string(16, 'u'));
  prefill.Send(stale);
  prefill.Send(prefill.FirstTokenOf(request));
  ASSERT_TRUE(call.Read());
  v1::TokenEvent rest;
  *rest.mutable_key() = request.key();
  rest.set_finish_reason(v1::FINISH_REASON_LENGTH);
  rest.add_tokens('a');
  rest.add_tokens('b');
  decode.Send(rest);
  EXPECT_EQ(call.ReadAll().text, "ab");
  EXPECT_EQ(Metric("baton_router_events_dropped_total{reason=\"old_attempt\"}"), 1);
  EXPECT_EQ(Metric("baton_router_events_dropped_total{reason=\"duplicate\"}"), 1);
}

TEST_F(RouterTest, AWorkerLostBeforeTheFirstTokenIsReplaced) {
  for (const bool kill_decode : {false, true}) {
    SCOPED_TRACE(kill_decode);
    Start();
    FakeWorker& prefill = AddWorker({.answers = false});
    FakeWorker& decode = AddDecode({.answers = false});
    Call call(*stub_, Request(30));
    ASSERT_TRUE(prefill.WaitForCalls(1) && decode.WaitForCalls(1));
    const v1::RequestKey first = prefill.calls()[0].key();
    AddWorker();
    AddDecode();
    // The other half does not answer either: it must not get the second attempt.
    FakeWorker& other = kill_decode ? prefill : decode;
    other.AnnounceDraining();
    ASSERT_TRUE(WaitFor([&] {
      const std::vector<WorkerSnapshot> workers = router_->Status().workers;
      return workers.at(kill_decode ? 0 : 1).state == WorkerState::kDraining;
    }));
    (kill_decode ? decode : prefill).Kill();
    EXPECT_TRUE(other.WaitForCancel(first));
    const Answer& answer = call.ReadAll();
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_EQ(answer.text, Alphabet(30));
    TearDown();
  }
}

TEST_F(RouterTest, AWorkerLostAfterTheFirstTokenEndsTheRequest) {
  Start();
  FakeWorker& prefill = AddWorker();
  FakeWorker& decode = AddDecode({.answers = false});
  AddDecode();
  // Placed on the one that does not answer: the other one is full of nothing, so ask until it is.
  std::vector<std::unique_ptr<Call>> calls;
  while (decode.calls().empty()) {
    calls.push_back(std::make_unique<Call>(*stub_, Request(2)));
    ASSERT_TRUE(calls.back()->Read());
  }
  Call& call = *calls.back();
  const absl::Time killed = absl::Now();
  decode.Kill();
  const Answer& answer = call.ReadAll();
  EXPECT_EQ(answer.status.error_code(), kUnavailable);
  EXPECT_EQ(answer.text, "a");
  EXPECT_LT(absl::Now() - killed, absl::Seconds(1));
  EXPECT_TRUE(prefill.WaitForCancel(prefill.calls().back().key()));
}

TEST_F(RouterTest, APrefillWorkerLostAfterTheHandoffIsNotMissed) {
  Start();
  FakeWorker& prefill = AddWorker();
  AddDecode({.step = absl::Milliseconds(5)});
  Call call(*stub_, Request(60));
  while (call.answer().tokens.size() < 2) ASSERT_TRUE(call.Read());
  prefill.Kill();
  const Answer& answer = call.ReadAll();
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.text, Alphabet(60));
}

TEST_F(RouterTest, APrefillWorkerLostBeforeTheHandoffEndsAStartedAnswer) {
  Start();
  FakeWorker& prefill = AddWorker();
  FakeWorker& decode = AddDecode({.answers = false});
  Call call(*stub_, Request(60));
  ASSERT_TRUE(call.Read());
  prefill.Kill();
  const absl::Time killed = absl::Now();
  EXPECT_EQ(call.ReadAll().status.error_code(), kUnavailable);
  EXPECT_LT(absl::Now() - killed, absl::Seconds(1));
  EXPECT_TRUE(decode.WaitForCancel(decode.FirstCall().key()));
}

TEST_F(RouterTest, APromptThatKilledTwoWorkersIsNotTriedAgain) {
  Start();
  AddWorker({.answers = false});
  AddWorker({.answers = false});
  FakeWorker& spare = AddWorker({.answers = false});
  AddDecode({.answers = false});
  Call call(*stub_, Request(30));
  std::vector<FakeWorker*> prefills = {workers_[0].get(), workers_[1].get(), &spare};
  for (int deaths = 0; deaths < 2; ++deaths) {
    FakeWorker* victim = nullptr;
    ASSERT_TRUE(WaitFor([&] {
      for (FakeWorker* worker : prefills) {
        if (!worker->calls().empty()) victim = worker;
      }
      return victim != nullptr;
    }));
    EXPECT_EQ(victim->calls()[0].key().attempt(), static_cast<uint32_t>(deaths + 1));
    std::erase(prefills, victim);
    victim->Kill();
  }
  const Answer& answer = call.ReadAll();
  EXPECT_EQ(answer.status.error_code(), kUnavailable);
  EXPECT_THAT(answer.status.error_message(), HasSubstr("2 workers were lost"));
  EXPECT_THAT(prefills[0]->calls(), IsEmpty());
}

TEST_F(RouterTest, AnErrorOfAnEngineIsRetriedOrPassedOn) {
  Start();
  FakeWorker& prefill = AddWorker({.answers = false});
  FakeWorker& decode = AddDecode({.answers = false});
  Call call(*stub_, Request(2));
  ASSERT_TRUE(prefill.WaitForCalls(1) && decode.WaitForCalls(1));
  v1::TokenEvent error;
  *error.mutable_key() = prefill.calls()[0].key();
  error.mutable_error()->set_code(static_cast<uint32_t>(kUnavailable));
  error.mutable_error()->set_message("the link broke");
  decode.Send(error);
  ASSERT_TRUE(prefill.WaitForCalls(2));
  EXPECT_EQ(prefill.calls()[1].key().attempt(), 2u);
  EXPECT_TRUE(prefill.WaitForCancel(prefill.calls()[0].key()));
  *error.mutable_key() = prefill.calls()[1].key();
  error.mutable_error()->set_code(static_cast<uint32_t>(grpc::StatusCode::INTERNAL));
  error.mutable_error()->set_message("logits are not finite");
  prefill.Send(error);
  const Answer& answer = call.ReadAll();
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(answer.status.error_message(), "logits are not finite");
}

TEST_F(RouterTest, WantOfRoomInTheMiddleOfAnAnswerIsCalledSo) {
  Start();
  AddWorker();
  FakeWorker& decode = AddDecode({.answers = false});
  Call call(*stub_, Request(20));
  ASSERT_TRUE(call.Read());
  v1::TokenEvent error;
  *error.mutable_key() = decode.FirstCall().key();
  error.mutable_error()->set_code(static_cast<uint32_t>(kExhausted));
  error.mutable_error()->set_message("20 blocks are needed, 10 are there");
  decode.Send(error);
  const Answer& answer = call.ReadAll();
  EXPECT_EQ(answer.status.error_code(), kExhausted);
  EXPECT_THAT(answer.status.error_message(), HasSubstr("20 blocks are needed"));
}

// Whatever a worker sends is looked up in the tokenizer only if it can be found there.
TEST_F(RouterTest, AWorkerThatSendsAnImpossibleTokenIsCutOff) {
  Start();
  AddWorker();
  const auto spoil = [](void (*how)(v1::TokenEvent&)) {
    return [how](v1::TokenEvent event) {
      how(event);
      return event;
    };
  };
  for (const auto& spoilt : {
           spoil([](v1::TokenEvent& event) { event.set_tokens(0, 258); }),
           spoil([](v1::TokenEvent& event) {
             event.add_logprobs()->mutable_chosen()->set_token_id(~0u);
           }),
           spoil([](v1::TokenEvent& event) { event.add_logprobs()->add_top()->set_token_id(~0u); }),
           spoil([](v1::TokenEvent& event) {
             event.add_prompt_logprobs()->add_top()->set_token_id(~0u);
           }),
       }) {
    FakeWorker& decode = AddDecode({.answers = false});
    Call call(*stub_, Request(2));
    decode.Send(spoilt(decode.FirstTokenOf(decode.FirstCall())));
    const grpc::Status end = decode.WaitForEnd();
    EXPECT_EQ(end.error_code(), kInvalidArgument);
    EXPECT_THAT(end.error_message(), HasSubstr("258"));
    EXPECT_EQ(call.ReadAll().status.error_code(), kUnavailable);
  }
  AddDecode();
  EXPECT_TRUE(Call(*stub_, Request(2)).ReadAll().status.ok());
}

TEST_F(RouterTest, ADecodeWorkerThatRefusesIsReplacedByAnother) {
  Start();
  FakeWorker& prefill = AddWorker();
  FakeWorker& full = AddDecode({.reports = false});
  full.SetAnswerToCalls(grpc::Status(kExhausted, "no room"));
  AddDecode();
  // Each request goes to a free worker by lot; the refusing one holds nobody up.
  for (int i = 0; i < 10; ++i) EXPECT_EQ(Ask(Request(5)).text, Alphabet(5));
  // Asked once, and not again before it has reported.
  EXPECT_LE(full.calls().size(), 1u);
  EXPECT_EQ(prefill.calls().size(), 10 + full.calls().size());
}

// The decode worker refuses the admission and the hand-off, and the prefill worker tells of it
// first.
TEST_F(RouterTest, ARefusalIsNoFailureInWhateverOrderItIsHeard) {
  RouterConfig config = TestConfig();
  config.failures_max = 1;
  Start(config);
  FakeWorker& prefill = AddWorker({.answers = false});
  FakeWorker& decode = AddDecode();
  decode.SetAnswerToCalls({kExhausted, "no room"});
  decode.HoldCalls(true);
  Call call(*stub_, Request(3));
  ASSERT_TRUE(prefill.WaitForCalls(1) && decode.WaitForCalls(1));
  const double heard = Metric("baton_router_step_batches_total");
  v1::TokenEvent error;
  *error.mutable_key() = prefill.FirstCall().key();
  error.mutable_error()->set_code(static_cast<uint32_t>(kUnavailable));
  error.mutable_error()->set_message("the hand-off was refused");
  prefill.Send(error);
  ASSERT_TRUE(WaitFor([&] { return Metric("baton_router_step_batches_total") > heard; }));
  decode.SetAnswerToCalls(grpc::Status::OK);
  decode.HoldCalls(false);
  ASSERT_TRUE(prefill.WaitForCalls(2));
  prefill.Send(prefill.FirstTokenOf(prefill.calls()[1]));
  EXPECT_TRUE(call.ReadAll().status.ok()) << call.answer().status.error_message();
}

TEST_F(RouterTest, RequestsWaitWhileAllDecodeWorkersRefuse) {
  RouterConfig config = TestConfig();
  config.queue_tokens_max = 40;
  Start(config);
  AddWorker({.reports = false});
  FakeWorker& decode = AddDecode({.reports = false});
  decode.SetAnswerToCalls(grpc::Status(kExhausted, "no room"));
  Call waits(*stub_, Request(5, std::string(16, 'x')));
  ASSERT_TRUE(WaitFor([&] { return Metric("baton_router_queue_tokens") == 16; }));
  Call waits_too(*stub_, Request(6, std::string(20, 'x')));
  ASSERT_TRUE(WaitFor([&] { return Metric("baton_router_queue_tokens") == 36; }));
  EXPECT_EQ(router_->Status().requests_waiting, 2u);
  const Answer beyond = Ask(Request(5, std::string(30, 'x')));
  EXPECT_EQ(beyond.status.error_code(), kExhausted);
  EXPECT_THAT(beyond.status.error_message(), HasSubstr("40"));
  EXPECT_EQ(Ask(Request(5, std::string(18, 'x')), absl::Milliseconds(100)).status.error_code(),
            kExhausted);
  decode.SetAnswerToCalls(grpc::Status::OK);
  decode.Report({});
  EXPECT_EQ(waits.ReadAll().text, Alphabet(5));
  EXPECT_EQ(waits_too.ReadAll().text, Alphabet(6));
}

TEST_F(RouterTest, AWaitingRequestEndsAtItsDeadlineOrBound) {
  RouterConfig config = TestConfig();
  config.queue_wait_max = absl::Milliseconds(300);
  Start(config);
  AddWorker({.reports = false});
  FakeWorker& decode = AddDecode({.reports = false});
  decode.SetAnswerToCalls(grpc::Status(kExhausted, "no room"));
  EXPECT_EQ(Ask(Request(5), absl::Milliseconds(100)).status.error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(Ask(Request(5)).status.error_code(), kExhausted);
  EXPECT_TRUE(WaitFor([&] { return Metric("baton_router_queue_tokens") == 0; }));
}

TEST_F(RouterTest, AFullBatchMakesTheNextRequestWaitForASequenceToEnd) {
  Start();
  AddWorker({.reports = false});
  FakeWorker& decode = AddDecode({.running_sequences_max = 1, .reports = false});
  Call first(*stub_, Request(100));
  ASSERT_TRUE(first.Read());
  Call second(*stub_, Request(4));
  ASSERT_TRUE(WaitFor([&] { return router_->Status().requests_waiting == 1; }));
  EXPECT_EQ(decode.calls().size(), 1u);
  EXPECT_TRUE(first.ReadAll().status.ok());
  EXPECT_EQ(second.ReadAll().text, Alphabet(4));
}

TEST_F(RouterTest, RequestsWaitForTheFirstWorkersAtStartOnly) {
  RouterConfig config = TestConfig();
  config.worker_wait = absl::Seconds(20);
  Start(config);
  Call early(*stub_, Request(5));
  ASSERT_TRUE(WaitFor([&] { return Metric("baton_router_queue_tokens") == 16; }));
  AddWorker();
  AddDecode();
  EXPECT_EQ(early.ReadAll().text, Alphabet(5));
  TearDown();

  config.worker_wait = absl::Milliseconds(200);
  Start(config);
  const Answer late = Ask(Request(5));
  EXPECT_EQ(late.status.error_code(), kUnavailable);
  EXPECT_GE(late.took, absl::Milliseconds(100));
  const Answer later = Ask(Request(5));
  EXPECT_EQ(later.status.error_code(), kUnavailable);
  EXPECT_LT(later.took, absl::Milliseconds(200));
}

TEST_F(RouterTest, AFrozenWorkerIsGivenUp) {
  RouterConfig config = TestConfig();
  config.worker_suspect_after = absl::Milliseconds(200);
  config.worker_dead_after = absl::Milliseconds(1000);
  Start(config);
  AddWorker();
  FakeWorker& decode = AddDecode();
  Call call(*stub_, Request(1000));
  ASSERT_TRUE(call.Read());
  decode.Freeze();
  EXPECT_EQ(call.ReadAll().status.error_code(), kUnavailable);
  EXPECT_EQ(router_->Status().workers.size(), 1u);
  EXPECT_EQ(decode.WaitForEnd().error_code(), kUnavailable);
}

TEST_F(RouterTest, AttachIsRefusedWithAReason) {
  RouterConfig config = TestConfig();
  config.attach_workers_max = 2;
  Start(config);
  const auto refusal = [&](FakeWorkerOptions options) {
    return FakeWorker(std::move(options), router_->worker_address()).WaitForEnd().error_code();
  };
  EXPECT_EQ(refusal({.model_digest = "another"}), kFailedPrecondition);
  EXPECT_EQ(refusal({.vocabulary_size = 100}), kFailedPrecondition);
  EXPECT_EQ(refusal({.context_tokens = 0}), kInvalidArgument);
  EXPECT_EQ(refusal({.compatibility = ""}), kInvalidArgument);
  AddWorker();
  AddDecode();
  EXPECT_EQ(refusal({}), kExhausted);
}

TEST_F(RouterTest, ADrainingWorkerFinishesWhatItHas) {
  Start();
  AddWorker();
  FakeWorker& decode = AddDecode({.step = absl::Milliseconds(5)});
  Call call(*stub_, Request(40));
  ASSERT_TRUE(call.Read());
  decode.AnnounceDraining();
  ASSERT_TRUE(
      WaitFor([&] { return router_->Status().workers.at(1).state == WorkerState::kDraining; }));
  EXPECT_EQ(Ask(Request(4)).status.error_code(), kUnavailable);
  EXPECT_EQ(call.ReadAll().text, Alphabet(40));
}

TEST_F(RouterTest, DrainFinishesRunningAnswersAndRefusesNewOnes) {
  Start();
  AddWorker();
  AddDecode({.step = absl::Milliseconds(3)});
  Call call(*stub_, Request(100));
  ASSERT_TRUE(call.Read());
  bool drained = false;
  std::thread drain([&] { drained = router_->Drain(); });
  EXPECT_TRUE(WaitFor([&] { return Ask(Request(4)).status.error_code() == kUnavailable; }));
  EXPECT_EQ(call.ReadAll().text, Alphabet(100));
  drain.join();
  EXPECT_TRUE(drained);
}

TEST_F(RouterTest, StopEndsWhatIsLeftWithUnavailable) {
  RouterConfig config = TestConfig();
  config.drain_timeout = absl::Milliseconds(50);
  Start(config);
  FakeWorker& prefill = AddWorker({.answers = false});
  AddDecode({.answers = false});
  Call call(*stub_, Request(100));
  ASSERT_TRUE(prefill.WaitForCalls(1));
  EXPECT_FALSE(router_->Drain());
  router_->Stop();
  EXPECT_EQ(call.ReadAll().status.error_code(), kUnavailable);
}

TEST_F(RouterTest, ASlowClientIsCutOffAndHurtsNobodyElse) {
  // Tokens of 16 KiB, so that few of them fill what TCP and HTTP/2 buffer.
  const std::vector<std::string> words = {std::string(16 << 10, 'w')};
  std::vector<uint32_t> script(1000, kFakeFirstWord);
  RouterConfig config = TestConfig();
  config.answer_buffer_bytes_max = 1 << 20;
  Start(config, FakeModel(words));
  AddWorker({.vocabulary_size = 259, .script = script});
  FakeWorker& decode = AddDecode({.vocabulary_size = 259, .script = script});
  Call slow(*stub_, Request(1000));
  ASSERT_TRUE(slow.Read());
  const Answer quick = Ask(Request(20));
  EXPECT_TRUE(quick.status.ok()) << quick.status.error_message();
  EXPECT_EQ(quick.text.size(), 20u << 14);
  EXPECT_TRUE(decode.WaitForCancel(decode.FirstCall().key()));
  EXPECT_EQ(Metric("baton_router_requests_total{outcome=\"exhausted\"}"), 1);
  EXPECT_EQ(slow.ReadAll().status.error_code(), kExhausted);
  EXPECT_LT(slow.answer().text.size(), 1000u << 14);
}

TEST_F(RouterTest, TwoHundredAndFiftySixStreamsAtOnce) {
  RouterConfig config = TestConfig();
  config.relay_threads = 2;
  Start(config);
  AddWorker();
  AddDecode({.running_sequences_max = 256});
  std::vector<std::unique_ptr<Call>> calls;
  for (int i = 0; i < 256; ++i) calls.push_back(std::make_unique<Call>(*stub_, Request(50)));
  for (const auto& call : calls) {
    const Answer& answer = call->ReadAll();
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_EQ(answer.text, Alphabet(50));
  }
  EXPECT_EQ(Metric("baton_router_requests_total{outcome=\"length\"}"), 256);
  EXPECT_EQ(Metric("baton_router_completion_tokens_total"), 256 * 50);
  EXPECT_EQ(router_->Status().requests_running, 0u);
}

TEST_F(RouterTest, SaysWhatItServesAndHowItIs) {
  Start();
  AddWorker({.context_tokens = 500});
  AddDecode({.local_prefill = true, .context_tokens = 400});
  {
    grpc::ClientContext context;
    v1::ListModelsResponse models;
    ASSERT_TRUE(stub_->ListModels(&context, {}, &models).ok());
    ASSERT_EQ(models.models_size(), 1);
    EXPECT_EQ(models.models(0).name(), "fake");
    EXPECT_EQ(models.models(0).context_tokens(), 400u);
    EXPECT_EQ(models.models(0).vocabulary_size(), 258u);
    EXPECT_TRUE(models.models(0).has_chat_template());
  }
  {
    grpc::ClientContext context;
    v1::GetClusterStatusResponse status;
    ASSERT_TRUE(stub_->GetClusterStatus(&context, {}, &status).ok());
    ASSERT_EQ(status.workers_size(), 2);
    EXPECT_EQ(status.workers(0).role(), "prefill");
    EXPECT_EQ(status.workers(1).role(), "decode");
    EXPECT_EQ(status.workers(0).state(), "ready");
    EXPECT_EQ(status.workers(0).incarnation().size(), 32u);
    EXPECT_EQ(status.workers(1).blocks_free(), 4096u);
  }
  {
    grpc::ClientContext context;
    v1::TokenizeRequest request;
    request.set_text("<bos>é");
    v1::TokenizeResponse response;
    ASSERT_TRUE(stub_->Tokenize(&context, request, &response).ok());
    EXPECT_EQ(response.token_ids_size(), 7);
    request.set_parse_special(true);
    grpc::ClientContext special_context;
    ASSERT_TRUE(stub_->Tokenize(&special_context, request, &response).ok());
    ASSERT_EQ(response.token_ids_size(), 3);
    EXPECT_EQ(response.token_bytes(1), "\xC3");
  }
  {
    grpc::ClientContext context;
    v1::DetokenizeRequest request;
    for (const uint32_t token : {kFakeBos, 0xC3u, 0xA9u, 0xC3u}) request.add_token_ids(token);
    v1::DetokenizeResponse response;
    ASSERT_TRUE(stub_->Detokenize(&context, request, &response).ok());
    EXPECT_EQ(response.text(), "<bos>é\xEF\xBF\xBD");
    request.add_token_ids(258);
    grpc::ClientContext bad_context;
    EXPECT_EQ(stub_->Detokenize(&bad_context, request, &response).error_code(), kInvalidArgument);
  }
}

}  // namespace
}  // namespace baton::router
