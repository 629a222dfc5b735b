#include "model/chat_template/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "nlohmann/json.hpp"
#include "tests/source_dir.h"

namespace baton::model {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Json = nlohmann::ordered_json;

absl::StatusOr<std::string> Render(absl::string_view source, const Json& variables = Json::object(),
                                   const Json& messages = Json::array()) {
  const auto compiled = ChatTemplate::Compile(source);
  if (!compiled.ok()) return compiled.status();
  ChatTemplateInputs inputs;
  inputs.messages = &messages;
  inputs.extra = &variables;
  inputs.bos_text = "<s>";
  inputs.eos_text = "</s>";
  inputs.now = absl::FromCivil(absl::CivilSecond(2025, 3, 14, 15, 9, 26), absl::UTCTimeZone());
  return (*compiled)->Render(inputs);
}

// Small templates for each feature, with what Jinja renders; see make_jinja_cases.py.
TEST(ChatTemplate, RendersAsJinjaDoes) {
  std::ifstream file(SourceDir() + "/tests/model/chat_template/jinja_cases.json");
  const Json document = Json::parse(file);
  size_t rendered_count = 0, refused_count = 0;
  for (const Json& test : document["cases"]) {
    const std::string source = test["template"].get<std::string>();
    const auto rendered = Render(source, document["variables"]);
    if (test.contains("error")) {
      ++refused_count;
      EXPECT_EQ(rendered.status().code(), absl::StatusCode::kInvalidArgument)
          << source << "\nJinja: " << test["error"];
    } else {
      ++rendered_count;
      ASSERT_TRUE(rendered.ok()) << source << "\n" << rendered.status();
      EXPECT_EQ(*rendered, test["expected"].get<std::string>()) << source;
    }
  }
  EXPECT_GT(rendered_count, 100u);
  EXPECT_GT(refused_count, 50u);
}

TEST(ChatTemplate, ErrorsNameLineAndColumn) {
  const struct {
    absl::string_view source;
    absl::string_view message;
  } kCases[] = {
      {"a\nbé {{ 1 + }}", "line 2, column 11: expected an expression, found '}}'"},
      {"{% if x %}\n",
       "line 1, column 11: expected {% elif %} or {% else %} or {% endif %}, found"},
      {"\n\n  {{ x|nope }}", "line 3, column 8: filter 'nope' is not known; known are abs, "},
      {"{{ x is nope }}", "line 1, column 9: test 'nope' is not known; known are "},
      {"{% include 'a' %}", "line 1, column 1: statement 'include' is not known; known are break"},
      {"{{ 'a", "line 1, column 4: string is not closed"},
      {"x {# y", "line 1, column 3: comment is not closed"},
      {"{% raw %}", "line 1, column 1: raw is not closed"},
      {"{{ x", "line 1, column 1: {{ is not closed by }}"},
      {"{{ (1] }}", "line 1, column 6: unexpected ']'"},
      {"{{ \"\\ud800\" }}", "line 1, column 5: escape in a string is not a Unicode character"},
      {"{{ 9223372036854775808 }}", "line 1, column 4: integer 9223372036854775808 is beyond"},
      {"{% for x in y recursive %}{% endfor %}", "recursive loops are not supported"},
      {"{{ f(*x) }}", "* and ** in arguments are not supported"},
      {"{{ y }}\n{{ x.a.b }}", "line 2, column 7: 'a' is undefined"},
      {"{% for m in messages %}\n {{ m.content + 1 }}{% endfor %}",
       "line 2, column 5: unsupported"},
      {"{{ 1 }}\n{{ 9223372036854775807 + 1 }}", "line 2, column 4: integer is beyond 64 bits"},
      {"{% macro m() %}{{ nope.x }}{% endmacro %}\n{{ m() }}", "line 1, column 23: 'nope' is"},
  };
  const Json messages = Json::parse(R"([{"content": "x"}])");
  const Json variables = Json::parse(R"({"x": {}})");
  for (const auto& test : kCases) {
    const auto rendered = Render(test.source, variables, messages);
    EXPECT_EQ(rendered.status().code(), absl::StatusCode::kInvalidArgument) << test.source;
    EXPECT_THAT(std::string(rendered.status().message()), StartsWith("chat template line "));
    EXPECT_THAT(std::string(rendered.status().message()), HasSubstr(std::string(test.message)));
  }
}

TEST(ChatTemplate, WhatTheTemplateRaisesIsTheMessage) {
  const auto rendered = Render(
      "a{% macro m() %}{{ raise_exception('roles must alternate') }}"
      "{% endmacro %}\n{{ m() }}");
  EXPECT_EQ(rendered.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(rendered.status().message(), "roles must alternate");
}

TEST(ChatTemplate, RefusesSourceThatIsNoTemplate) {
  EXPECT_THAT(std::string(ChatTemplate::Compile("ok \xff").status().message()),
              HasSubstr("not valid UTF-8 at byte offset 3"));
  const std::string large(ChatTemplate::kSourceBytesMax + 1, ' ');
  EXPECT_EQ(ChatTemplate::Compile(large).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ChatTemplate, RefusesInputsThatItCannotHold) {
  const auto message = [](const Json& variables) {
    const auto rendered = Render("{{ x }}", variables);
    EXPECT_EQ(rendered.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(rendered.status().message());
  };
  EXPECT_THAT(message({{"x", "a\xff"}}), HasSubstr("not valid UTF-8 at byte offset 1"));
  EXPECT_THAT(message({{"x", uint64_t{1} << 63}}), HasSubstr("beyond 2^63 - 1"));
  Json deep = 1;
  for (int i = 0; i < 10'000; ++i) deep = Json::array({std::move(deep)});
  EXPECT_THAT(message({{"x", std::move(deep)}}), HasSubstr("nested deeper than 64"));
  EXPECT_EQ(Render("", Json::object(), Json::object()).status().message(),
            "messages must be a list");
}

TEST(ChatTemplate, SetsTheVariablesOfTransformers) {
  const auto rendered = Render(
      "{{ bos_token }}{{ eos_token }}{{ tools }}{{ documents }}{{ add_generation_prompt }}"
      "{{ strftime_now('%d %b %Y %H:%M:%S') }}{{ x }}");
  ASSERT_TRUE(rendered.ok()) << rendered.status();
  EXPECT_EQ(*rendered, "<s></s>NoneNoneTrue14 Mar 2025 15:09:26");
}

TEST(ChatTemplate, KeepsTheOrderOfKeys) {
  const Json variables = Json::parse(R"({"tool": {"zeta": 1, "alpha": {"y": 1, "b": 2}}})");
  const auto rendered =
      Render("{{ tool|tojson }}{% for k in tool %}{{ k }}{% endfor %}", variables);
  ASSERT_TRUE(rendered.ok()) << rendered.status();
  EXPECT_EQ(*rendered, R"({"zeta": 1, "alpha": {"y": 1, "b": 2}}zetaalpha)");
}

TEST(ChatTemplate, ContentIsNeverEvaluated) {
  const Json messages = Json::parse(R"([{"content": "{{ 1 + 1 }}{% raw %}"}])");
  const auto rendered = Render("{{ messages[0].content }}", Json::object(), messages);
  ASSERT_TRUE(rendered.ok()) << rendered.status();
  EXPECT_EQ(*rendered, "{{ 1 + 1 }}{% raw %}");
}

TEST(ChatTemplate, GenerationBlocksPrintTheirBody) {
  const auto rendered = Render("a{% generation %}b{% endgeneration %}c");
  ASSERT_TRUE(rendered.ok()) << rendered.status();
  EXPECT_EQ(*rendered, "abc");
}

TEST(ChatTemplate, RendersTheSameAgain) {
  const auto compiled = ChatTemplate::Compile(
      "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}"
      "{{ ns.n }}{{ messages[0].content }}");
  ASSERT_TRUE(compiled.ok());
  const Json messages = Json::parse(R"([{"content": "x"}, {"content": "y"}])");
  ChatTemplateInputs inputs;
  inputs.messages = &messages;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(*(*compiled)->Render(inputs), "2x");
}

TEST(ChatTemplate, AMacroIsGoneWithItsBlock) {
  const auto rendered = Render(
      "{% set ns = namespace() %}{% for x in [1] %}{% macro m() %}{{ x }}{% endmacro %}"
      "{% set ns.m = m %}{% endfor %}{{ ns.m() }}");
  EXPECT_THAT(std::string(rendered.status().message()), HasSubstr("outside of the block"));
}

}  // namespace
}  // namespace baton::model
