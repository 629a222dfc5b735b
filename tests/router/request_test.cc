// Every bad input of the public API: which code it gives, and that the message names field, value
// and legal range.

#include "router/request.h"

#include <cmath>
#include <functional>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "router/inference_codec.h"
#include "tests/router/fake_text.h"

namespace baton::router {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kPromptBytesMax = 1000;

absl::Status Check(const v1::GenerateRequest& wire, const ServedModel& model) {
  const absl::StatusOr<RequestSpec> spec = FromProto(wire);
  return spec.ok() ? Validate(*spec, model, kPromptBytesMax) : spec.status();
}
absl::Status Check(const v1::ChatRequest& wire, const ServedModel& model) {
  const absl::StatusOr<RequestSpec> spec = FromProto(wire);
  return spec.ok() ? Validate(*spec, model, kPromptBytesMax) : spec.status();
}

v1::GenerateRequest Good() {
  v1::GenerateRequest wire;
  wire.set_text("Once upon");
  return wire;
}

struct BadInput {
  std::string name;
  std::function<void(v1::GenerateRequest&)> spoil;
  std::vector<std::string> message;
  absl::StatusCode code = absl::StatusCode::kInvalidArgument;
};

class BadInputTest : public testing::TestWithParam<BadInput> {};

TEST_P(BadInputTest, IsRefusedNamingFieldValueAndRange) {
  const auto model = FakeModel();
  v1::GenerateRequest wire = Good();
  ASSERT_TRUE(Check(wire, *model).ok());
  GetParam().spoil(wire);
  const absl::Status status = Check(wire, *model);
  EXPECT_EQ(status.code(), GetParam().code) << status;
  for (const std::string& part : GetParam().message) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }
}

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <typename Setter>
std::function<void(v1::GenerateRequest&)> Sampling(Setter setter, float value) {
  return [=](v1::GenerateRequest& wire) { (wire.mutable_sampling()->*setter)(value); };
}

const BadInput kBadInputs[] = {
    {"NoPrompt", [](auto& w) { w.clear_text(); }, {"prompt", "text or token_ids"}},
    {"EmptyText", [](auto& w) { w.set_text(""); }, {"text", "empty"}},
    {"LongText", [](auto& w) { w.set_text(std::string(1001, 'a')); }, {"text", "1001", "1000"}},
    {"NoTokens", [](auto& w) { w.mutable_token_ids(); }, {"token_ids", "at least 1"}},
    {"TokenOutsideTheVocabulary",
     [](auto& w) { w.mutable_token_ids()->add_ids(258); },
     {"token_ids[0]", "258", "[0, 258)"}},
    {"HugeToken",
     [](auto& w) { w.mutable_token_ids()->add_ids(0x80000000u); },
     {"token_ids[0]", "2147483648"}},
    {"UnknownModel",
     [](auto& w) { w.set_model("gpt"); },
     {"model", "gpt", "fake"},
     absl::StatusCode::kNotFound},
    {"LongClientId",
     [](auto& w) { w.set_client_request_id(std::string(257, 'x')); },
     {"client_request_id", "257", "256"}},
    {"TwoAnswers", [](auto& w) { w.set_n(2); }, {"n is 2", "1"}},
    {"NoAnswers", [](auto& w) { w.set_n(0); }, {"n is 0", "1"}},
    {"TemperatureNan",
     Sampling(&v1::SamplingParams::set_temperature, kNan),
     {"temperature", "nan", ">= 0"}},
    {"TemperatureNegative",
     Sampling(&v1::SamplingParams::set_temperature, -0.5f),
     {"temperature", "-0.5", ">= 0"}},
    {"TemperatureInfinite",
     Sampling(&v1::SamplingParams::set_temperature, kInfinity),
     {"temperature", "inf", "finite"}},
    {"TopPZero", Sampling(&v1::SamplingParams::set_top_p, 0), {"top_p", "0", "(0, 1]"}},
    {"TopPAboveOne", Sampling(&v1::SamplingParams::set_top_p, 1.5f), {"top_p", "1.5", "(0, 1]"}},
    {"TopPNan", Sampling(&v1::SamplingParams::set_top_p, kNan), {"top_p", "nan", "(0, 1]"}},
    {"MinPNegative",
     Sampling(&v1::SamplingParams::set_min_p, -0.25f),
     {"min_p", "-0.25", "[0, 1]"}},
    {"MinPAboveOne", Sampling(&v1::SamplingParams::set_min_p, 1.25f), {"min_p", "1.25", "[0, 1]"}},
    {"MinPNan", Sampling(&v1::SamplingParams::set_min_p, kNan), {"min_p", "nan"}},
    {"RepetitionZero",
     Sampling(&v1::SamplingParams::set_repetition_penalty, 0),
     {"repetition_penalty", "0", "> 0"}},
    {"RepetitionInfinite",
     Sampling(&v1::SamplingParams::set_repetition_penalty, kInfinity),
     {"repetition_penalty", "inf"}},
    {"PresenceLow",
     Sampling(&v1::SamplingParams::set_presence_penalty, -2.5f),
     {"presence_penalty", "-2.5", "[-2, 2]"}},
    {"PresenceNan",
     Sampling(&v1::SamplingParams::set_presence_penalty, kNan),
     {"presence_penalty", "nan"}},
    {"FrequencyHigh",
     Sampling(&v1::SamplingParams::set_frequency_penalty, 2.5f),
     {"frequency_penalty", "2.5", "[-2, 2]"}},
    {"BiasKeyOutside",
     [](auto& w) { (*w.mutable_sampling()->mutable_logit_bias())[258] = 1; },
     {"logit_bias", "258", "[0, 258)"}},
    {"BiasKeyNegative",
     [](auto& w) { (*w.mutable_sampling()->mutable_logit_bias())[0xFFFFFFFFu] = 1; },
     {"logit_bias", "4294967295"}},
    {"BiasValueHigh",
     [](auto& w) { (*w.mutable_sampling()->mutable_logit_bias())[3] = 101; },
     {"logit_bias[3]", "101", "[-100, 100]"}},
    {"BiasValueNan",
     [](auto& w) { (*w.mutable_sampling()->mutable_logit_bias())[3] = kNan; },
     {"logit_bias[3]", "nan"}},
    {"ManyBiases",
     [](auto& w) {
       for (uint32_t i = 0; i < 1025; ++i) (*w.mutable_sampling()->mutable_logit_bias())[i] = 1;
     },
     {"logit_bias", "1025", "1024"}},
    {"MaxTokensZero",
     [](auto& w) { w.mutable_stop_conditions()->set_max_tokens(0); },
     {"max_tokens", "0", ">= 1"}},
    {"MaxTokensNegative",
     [](auto& w) { w.mutable_stop_conditions()->set_max_tokens(-1); },
     {"max_tokens", "-1", ">= 1"}},
    {"SeventeenStops",
     [](auto& w) {
       for (int i = 0; i < 17; ++i) w.mutable_stop_conditions()->add_stop("x");
     },
     {"stop", "17", "16"}},
    {"EmptyStop",
     [](auto& w) {
       w.mutable_stop_conditions()->add_stop("x");
       w.mutable_stop_conditions()->add_stop("");
     },
     {"stop[1]", "0", "[1, 256]"}},
    {"LongStop",
     [](auto& w) { w.mutable_stop_conditions()->add_stop(std::string(257, 's')); },
     {"stop[0]", "257", "[1, 256]"}},
    {"ManyStopTokens",
     [](auto& w) {
       for (int i = 0; i < 65; ++i) w.mutable_stop_conditions()->add_stop_token_ids(1);
     },
     {"stop_token_ids", "65", "64"}},
    {"StopTokenOutside",
     [](auto& w) { w.mutable_stop_conditions()->add_stop_token_ids(999); },
     {"stop_token_ids[0]", "999", "[0, 258)"}},
    {"ManyLogprobs",
     [](auto& w) { w.mutable_logprob_options()->set_logprobs(21); },
     {"logprobs", "21", "[0, 20]"}},
    {"ManyPromptLogprobs",
     [](auto& w) { w.mutable_logprob_options()->set_prompt_logprobs(21); },
     {"prompt_logprobs", "21", "[0, 20]"}},
};
INSTANTIATE_TEST_SUITE_P(Cases, BadInputTest, testing::ValuesIn(kBadInputs),
                         [](const auto& info) { return info.param.name; });

TEST(Validate, TakesEveryLimitItself) {
  const auto model = FakeModel();
  v1::GenerateRequest wire;
  wire.set_model("fake");
  wire.set_text(std::string(1000, 'a'));
  wire.set_client_request_id(std::string(256, 'x'));
  wire.set_n(1);
  v1::SamplingParams& sampling = *wire.mutable_sampling();
  sampling.set_temperature(0);
  sampling.set_top_p(1);
  sampling.set_min_p(1);
  sampling.set_presence_penalty(-2);
  sampling.set_frequency_penalty(2);
  (*sampling.mutable_logit_bias())[257] = -100;
  for (int i = 0; i < 16; ++i) wire.mutable_stop_conditions()->add_stop(std::string(256, 's'));
  for (int i = 0; i < 64; ++i) wire.mutable_stop_conditions()->add_stop_token_ids(257);
  wire.mutable_stop_conditions()->set_max_tokens(1);
  wire.mutable_logprob_options()->set_logprobs(20);
  wire.mutable_logprob_options()->set_prompt_logprobs(20);
  EXPECT_TRUE(Check(wire, *model).ok()) << Check(wire, *model);
}

TEST(Validate, ModelsWithoutTextNeedTokenIds) {
  auto model = FakeModel();
  model->tokenizer = nullptr;
  EXPECT_EQ(Check(Good(), *model).code(), absl::StatusCode::kFailedPrecondition);
  v1::GenerateRequest wire;
  wire.mutable_token_ids()->add_ids(1);
  EXPECT_TRUE(Check(wire, *model).ok());
  wire.mutable_stop_conditions()->add_stop("x");
  EXPECT_EQ(Check(wire, *model).code(), absl::StatusCode::kFailedPrecondition);
}

v1::ChatRequest Chat(const std::string& role, int messages = 1) {
  v1::ChatRequest wire;
  for (int i = 0; i < messages; ++i) {
    wire.add_messages()->set_role(role);
    wire.mutable_messages(i)->set_content("hi");
  }
  return wire;
}

TEST(ValidateChat, TakesTheFourRoles) {
  const auto model = FakeModel();
  for (const char* role : {"system", "user", "assistant", "tool"}) {
    EXPECT_TRUE(Check(Chat(role), *model).ok()) << role;
  }
  const absl::Status status = Check(Chat("admin"), *model);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("messages[0].role is \"admin\""));
  EXPECT_THAT(std::string(status.message()), HasSubstr("\"assistant\""));
}

TEST(ValidateChat, BoundsTheMessages) {
  const auto model = FakeModel();
  EXPECT_EQ(Check(v1::ChatRequest(), *model).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Check(Chat("user", 1025), *model).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(Check(Chat("user", 1025), *model).message()), HasSubstr("1025"));
  v1::ChatRequest large = Chat("user");
  large.mutable_messages(0)->set_content(std::string(1001, 'a'));
  EXPECT_THAT(std::string(Check(large, *model).message()), HasSubstr("1001"));
}

TEST(ValidateChat, NeedsATemplate) {
  auto model = FakeModel();
  model->chat_template = nullptr;
  EXPECT_EQ(Check(Chat("user"), *model).code(), absl::StatusCode::kFailedPrecondition);
}

struct FitCase {
  uint64_t prompt;
  std::optional<int64_t> max_tokens;
  std::optional<uint32_t> want;  // Absent: INVALID_ARGUMENT.
};

TEST(ResolveMaxTokens, CountsPromptAndAnswerTogetherWithoutOverflow) {
  constexpr uint32_t kContext = 100;
  const FitCase cases[] = {
      {99, std::nullopt, 1},
      {100, std::nullopt, std::nullopt},
      {101, std::nullopt, std::nullopt},
      {1000, 1, std::nullopt},
      {60, std::nullopt, 40},
      {60, 40, 40},
      {60, 41, std::nullopt},
      {60, (int64_t{1} << 31) - 1, std::nullopt},
      {60, int64_t{1} << 31, std::nullopt},
      {60, int64_t{1} << 32, std::nullopt},
      {60, std::numeric_limits<int64_t>::max(), std::nullopt},
  };
  for (const FitCase& c : cases) {
    const auto got = ResolveMaxTokens(c.prompt, c.max_tokens, kContext);
    SCOPED_TRACE(testing::Message() << c.prompt << " + " << c.max_tokens.value_or(0));
    ASSERT_EQ(got.ok(), c.want.has_value());
    if (got.ok()) {
      EXPECT_EQ(*got, *c.want);
    } else {
      EXPECT_EQ(got.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(got.status().message()), HasSubstr(std::to_string(c.prompt)));
      EXPECT_THAT(std::string(got.status().message()), HasSubstr("100"));
    }
  }
}

TEST(EncodePrompt, PutsExactlyOneBos) {
  auto model = FakeModel();
  const auto encode = [&](const Prompt& prompt) {
    return EncodePrompt(*model, prompt, absl::Now(), 1000)->tokens;
  };
  EXPECT_EQ(encode(TextPrompt{.text = "a"}), std::vector<uint32_t>({'a'}));
  model->tokenizer = std::make_unique<FakeTokenizer>(/*adds_bos=*/true);
  EXPECT_EQ(encode(TextPrompt{.text = "a"}), std::vector<uint32_t>({kFakeBos, 'a'}));
  EXPECT_EQ(encode(TokenPrompt{{5, 6}}), std::vector<uint32_t>({5, 6}));
  const ChatPrompt chat{{{.role = "user", .content = "x"}}};
  for (const char* prefix : {"", "<bos>"}) {
    model->chat_template = std::make_unique<FakeChatTemplate>(prefix);
    const std::vector<uint32_t> tokens = encode(chat);
    EXPECT_EQ(tokens[0], kFakeBos);
    EXPECT_EQ(tokens[1], static_cast<uint32_t>('['));
  }
}

TEST(EncodePrompt, RefusesWhatCannotFitBeforeItIsEncoded) {
  const auto model = FakeModel();  // Its longest token has 5 bytes.
  const std::string bad_text(5 * 10 + 5, '\xff');  // Encoding it would be another error.
  const auto refused = EncodePrompt(*model, TextPrompt{.text = bad_text}, absl::Now(), 10);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()),
              AllOf(HasSubstr("55 bytes"), HasSubstr("11 tokens"), HasSubstr("at most 10")));
  const auto taken = EncodePrompt(*model, TextPrompt{.text = std::string(54, 'a')}, absl::Now(), 10);
  EXPECT_TRUE(taken.ok()) << taken.status();  // The count of its tokens is the caller's to judge.
}

TEST(EncodePrompt, ATemplateRefusesInItsOwnWords) {
  const auto model = FakeModel();
  const auto encoded =
      EncodePrompt(*model, ChatPrompt{{{.role = "assistant", .content = "x"}}}, absl::Now(), 1000);
  EXPECT_EQ(encoded.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(encoded.status().message()),
              HasSubstr("the assistant must not speak first"));
}

}  // namespace
}  // namespace baton::router
