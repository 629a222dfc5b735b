// What comes off the wire: every field's range, and that a legal request arrives as it was meant.
#include "worker/event_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace baton::worker {
namespace {

using testing::HasSubstr;

constexpr RequestLimits kLimits{.vocabulary_size = 100, .context_tokens = 64};

v1::EngineRequest LegalRequest() {
  v1::EngineRequest wire;
  wire.mutable_key()->set_request_id(std::string(15, 'r') + "1");
  wire.mutable_key()->set_attempt(1);
  wire.set_router_incarnation(std::string(16, 'i'));
  for (uint32_t token : {5, 6, 7, 99}) wire.add_tokens(token);
  wire.set_output_start(4);
  wire.mutable_sampling()->set_seed(42);
  wire.set_max_tokens(60);
  return wire;
}

struct BadCase {
  std::string name;
  std::function<void(v1::EngineRequest&)> spoil;
  std::vector<std::string> message_has;  // Field, value, range.
};

class BadRequestTest : public testing::TestWithParam<BadCase> {};

TEST_P(BadRequestTest, IsRefusedByName) {
  v1::EngineRequest wire = LegalRequest();
  GetParam().spoil(wire);
  const auto got = DecodeEngineRequest(wire, kLimits);
  ASSERT_EQ(got.status().code(), absl::StatusCode::kInvalidArgument) << got.status();
  for (const std::string& part : GetParam().message_has) {
    EXPECT_THAT(std::string(got.status().message()), HasSubstr(part));
  }
}

const BadCase kBadCases[] = {
    {"NoKey", [](auto& w) { w.clear_key(); }, {"key.request_id", "0 bytes", "16"}},
    {"ShortKey", [](auto& w) { w.mutable_key()->set_request_id("abc"); }, {"key.request_id", "3 bytes"}},
    {"LongKey",
     [](auto& w) { w.mutable_key()->set_request_id(std::string(4096, 'x')); },
     {"key.request_id", "4096 bytes"}},
    {"ZeroKey",
     [](auto& w) { w.mutable_key()->set_request_id(std::string(16, '\0')); },
     {"key.request_id", "zero"}},
    {"NoAttempt", [](auto& w) { w.mutable_key()->set_attempt(0); }, {"key.attempt", "0", "1"}},
    {"NoRouter", [](auto& w) { w.clear_router_incarnation(); }, {"router_incarnation", "16"}},
    {"NoTokens", [](auto& w) { w.clear_tokens(); }, {"tokens", "0 long", "[1, 64]"}},
    {"TooManyTokens",
     [](auto& w) { for (int i = 0; i < 61; ++i) w.add_tokens(1); },
     {"tokens", "65 long", "[1, 64]"}},
    {"TokenOutsideVocabulary", [](auto& w) { w.set_tokens(2, 100); }, {"tokens[2]", "100", "[0, 99]"}},
    {"TokenAllOnes", [](auto& w) { w.set_tokens(0, 0xffffffffu); }, {"tokens[0]", "4294967295"}},
    {"OutputStartZero", [](auto& w) { w.set_output_start(0); }, {"output_start", "0", "[1, 4]"}},
    {"OutputStartBeyond", [](auto& w) { w.set_output_start(5); }, {"output_start", "5", "[1, 4]"}},
    {"MaxTokensZero", [](auto& w) { w.set_max_tokens(0); }, {"max_tokens", "0", "[1, 60]"}},
    {"MaxTokensBeyondContext", [](auto& w) { w.set_max_tokens(61); }, {"max_tokens", "61", "60"}},
    {"MaxTokensWraps", [](auto& w) { w.set_max_tokens(0xffffffffu); }, {"max_tokens", "4294967295"}},
    {"MaxTokensAlreadyDrawn",
     [](auto& w) { w.set_output_start(1); w.set_max_tokens(3); },
     {"max_tokens", "3", "[4, 63]"}},
    {"PromptFillsContext",
     [](auto& w) {
       for (int i = 0; i < 60; ++i) w.add_tokens(1);
       w.set_output_start(64);
       w.set_max_tokens(1);
     },
     {"max_tokens"}},
    {"NoSeed", [](auto& w) { w.mutable_sampling()->clear_seed(); }, {"seed", "absent"}},
    {"NegativeTemperature",
     [](auto& w) { w.mutable_sampling()->set_temperature(-1.0f); },
     {"temperature"}},
    {"NanTemperature",
     [](auto& w) { w.mutable_sampling()->set_temperature(std::nanf("")); },
     {"temperature"}},
    {"TopPZero", [](auto& w) { w.mutable_sampling()->set_top_p(0.0f); }, {"top_p"}},
    {"BiasOutsideVocabulary",
     [](auto& w) { (*w.mutable_sampling()->mutable_logit_bias())[100] = 1.0f; },
     {"logit_bias", "100"}},
    {"BiasInfinite",
     [](auto& w) {
       (*w.mutable_sampling()->mutable_logit_bias())[1] = std::numeric_limits<float>::infinity();
     },
     {"logit_bias"}},
    {"TooManyBiases",
     [](auto& w) {
       for (uint32_t i = 0; i < 1025; ++i) (*w.mutable_sampling()->mutable_logit_bias())[i] = 0.0f;
     },
     {"logit_bias", "1025", "1024"}},
    {"StopTokenOutsideVocabulary", [](auto& w) { w.add_stop_token_ids(100); }, {"stop_token_ids[0]"}},
    {"TooManyStopTokens",
     [](auto& w) { for (int i = 0; i < 129; ++i) w.add_stop_token_ids(1); },
     {"stop_token_ids", "129", "128"}},
    {"TooManyLogprobs",
     [](auto& w) { w.mutable_logprob_options()->set_logprobs(21); },
     {"logprobs", "21", "20"}},
    {"TooManyPromptLogprobs",
     [](auto& w) { w.mutable_logprob_options()->set_prompt_logprobs(21); },
     {"prompt_logprobs", "21", "20"}},
    {"NegativeTimeLeft", [](auto& w) { w.mutable_time_left()->set_seconds(-1); }, {"time_left", "-1"}},
    {"EndlessTimeLeft",
     [](auto& w) { w.mutable_time_left()->set_seconds(std::numeric_limits<int64_t>::max()); },
     {"time_left"}},
    {"OddNanos", [](auto& w) { w.mutable_time_left()->set_nanos(1'000'000'000); }, {"time_left"}},
    {"SampleIndex", [](auto& w) { w.set_sample_index(128); }, {"sample_index", "128", "127"}},
    {"Adapter", [](auto& w) { w.set_adapter_digest("x"); }, {"adapter_digest"}},
    {"Grammar", [](auto& w) { w.set_grammar_digest("x"); }, {"grammar_digest"}},
    {"LongSalt", [](auto& w) { w.set_cache_salt(std::string(257, 's')); }, {"cache_salt", "257"}},
    {"Priority", [](auto& w) { w.set_priority(1); }, {"priority", "1"}},
};

INSTANTIATE_TEST_SUITE_P(Cases, BadRequestTest, testing::ValuesIn(kBadCases),
                         [](const auto& info) { return info.param.name; });

TEST(EventCodec, LegalRequestArrivesWhole) {
  v1::EngineRequest wire = LegalRequest();
  wire.set_output_start(2);
  wire.set_max_tokens(62);
  wire.mutable_sampling()->set_temperature(0.5f);
  (*wire.mutable_sampling()->mutable_logit_bias())[9] = -1.0f;
  (*wire.mutable_sampling()->mutable_logit_bias())[3] = 2.0f;
  wire.add_stop_token_ids(7);
  wire.mutable_logprob_options()->set_logprobs(0);
  wire.mutable_logprob_options()->set_prompt_logprobs(20);
  wire.mutable_time_left()->set_nanos(5'000'000);
  wire.set_sample_index(3);
  wire.set_cache_salt("salt");
  const auto got = DecodeEngineRequest(wire, kLimits);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->tokens, (std::vector<uint32_t>{5, 6, 7, 99}));
  EXPECT_EQ(got->output_start, 2u);
  EXPECT_EQ(got->remaining_tokens(), 60u);
  EXPECT_EQ(got->next_position(), 2u);
  EXPECT_EQ(got->sampling.temperature, 0.5f);
  EXPECT_EQ(got->sampling.logit_bias,
            (std::vector<std::pair<uint32_t, float>>{{3, 2.0f}, {9, -1.0f}}));
  EXPECT_EQ(got->sampling.seed, 42u);
  EXPECT_EQ(got->sampling.sample_index, 3u);
  EXPECT_EQ(got->sampling.logprobs, 0u);
  EXPECT_EQ(got->prompt_logprobs, 20u);
  EXPECT_EQ(got->stop_token_ids, std::vector<uint32_t>{7});
  EXPECT_EQ(got->time_left, absl::Milliseconds(5));
  EXPECT_EQ(got->cache_salt, "salt");
}

TEST(EventCodec, PromptLogprobsOfAHugePromptAreRefused) {
  v1::EngineRequest wire = LegalRequest();
  wire.mutable_tokens()->Resize(100'000, 1);
  wire.set_output_start(100'000);
  wire.set_max_tokens(1);
  wire.mutable_logprob_options()->set_prompt_logprobs(20);
  const auto got = DecodeEngineRequest(wire, {.vocabulary_size = 100, .context_tokens = 200'000});
  EXPECT_EQ(got.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(got.status().message()), HasSubstr("prompt_logprobs"));
}

TEST(EventCodec, PeerIsAHostAndPort) {
  const auto decode = [](const std::string& address, size_t incarnation_bytes) {
    v1::PrefillRequest wire;
    wire.set_decode_address(address);
    wire.set_decode_incarnation(std::string(incarnation_bytes, 'd'));
    return DecodeHandoffPeer(wire);
  };
  const auto none = decode("", 0);
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(none->has_value());
  const auto some = decode("decode-0.baton:50062", 16);
  ASSERT_TRUE(some.ok());
  EXPECT_EQ((*some)->address, "decode-0.baton:50062");
  ASSERT_TRUE(decode("[::1]:80", 16).ok());
  for (const char* bad : {"host", "host:", ":80", "host:0", "host:65536", "unix:/tmp/x:1",
                          "dns:///a:1", "a b:1", "a,b:1"}) {
    EXPECT_EQ(decode(bad, 16).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
  EXPECT_EQ(decode("host:1", 0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(decode("", 16).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(decode(std::string(300, 'h') + ":1", 16).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(EventCodec, EventGoesOutWhole) {
  TokenEvent event{.key = {{1, 2}, 3}, .sample_index = 4, .position = 5};
  event.tokens.push_back({.token = 6,
                          .logprobs = model::PositionLogprobs{.chosen = model::TokenLogprob{6, -1.0f},
                                                              .top = {{8, -0.5f}, {6, -1.0f}}}});
  event.tokens.push_back({.token = 7, .logprobs = model::PositionLogprobs{}});
  event.finish = runner::FinishReason::kLength;
  event.prefill_report = PrefillReport{.queue = absl::Milliseconds(1500), .compute = absl::Seconds(2)};
  event.decode_report = DecodeReport{.handoff = absl::Nanoseconds(7)};
  event.prompt_logprobs.resize(2);
  v1::TokenEvent wire;
  EncodeTokenEvent(event, wire);
  EXPECT_EQ(wire.key().request_id(), event.key.request_id.ToBytes());
  EXPECT_EQ(wire.key().attempt(), 3u);
  EXPECT_EQ(wire.sample_index(), 4u);
  EXPECT_EQ(wire.position(), 5u);
  EXPECT_THAT(wire.tokens(), testing::ElementsAre(6, 7));
  ASSERT_EQ(wire.logprobs_size(), 2);
  EXPECT_EQ(wire.logprobs(0).chosen().token_id(), 6u);
  EXPECT_EQ(wire.logprobs(0).top(0).logprob(), -0.5f);
  EXPECT_FALSE(wire.logprobs(1).has_chosen());
  EXPECT_EQ(wire.finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_FALSE(wire.has_error());
  EXPECT_EQ(wire.prefill_report().queue().seconds(), 1);
  EXPECT_EQ(wire.prefill_report().queue().nanos(), 500'000'000);
  EXPECT_EQ(wire.decode_report().handoff().nanos(), 7);
  EXPECT_EQ(wire.prompt_logprobs_size(), 2);
}

TEST(EventCodec, BoundOfAnEventHolds) {
  TokenEvent event{.key = {base::Id128::Random(), 0xffffffffu},
                   .sample_index = 0xffffffffu,
                   .position = 0xffffffffu,
                   .error = absl::InternalError(std::string(500, 'e')),
                   .prefill_report = PrefillReport{.cached_tokens = 0xffffffffu,
                                                   .queue = absl::Seconds(1e9),
                                                   .compute = absl::Seconds(1e9)},
                   .decode_report = DecodeReport{.handoff = absl::Seconds(1e9)}};
  model::PositionLogprobs full{.chosen = model::TokenLogprob{0xffffffffu, -1.0f}};
  for (int i = 0; i < 20; ++i) full.top.push_back({0xffffffffu, -1.0f});
  for (int i = 0; i < 2; ++i) event.tokens.push_back({.token = 0xffffffffu, .logprobs = full});
  event.prompt_logprobs.assign(1000, full);
  v1::StepEvents wire;
  EncodeTokenEvent(event, *wire.add_events());
  EXPECT_GE(EncodedBytesBound(event), wire.ByteSizeLong());
  EXPECT_LE(EncodedBytesBound(event), 2 * wire.ByteSizeLong());
}

TEST(EventCodec, AFullAnswerOfPromptLogprobsFitsAMessage) {
  TokenEvent event;
  model::PositionLogprobs full{.chosen = model::TokenLogprob{1, -1.0f}};
  for (int i = 0; i < 20; ++i) full.top.push_back({0xffffffffu, -1.0f});
  event.prompt_logprobs.assign(kPromptLogprobEntriesMax / 22, full);
  EXPECT_LT(EncodedBytesBound(event), size_t{16} << 20);
}

}  // namespace
}  // namespace baton::worker
