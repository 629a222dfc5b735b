// Templates that try to take all the time, memory or stack there is: each ends in an error, soon.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "model/chat_template/chat_template.h"
#include "nlohmann/json.hpp"

namespace baton::model {
namespace {

using Json = nlohmann::ordered_json;

std::string Repeat(absl::string_view piece, size_t times) {
  std::string text;
  for (size_t i = 0; i < times; ++i) absl::StrAppend(&text, piece);
  return text;
}

absl::Status RenderStatus(absl::string_view source) {
  const auto compiled = ChatTemplate::Compile(source);
  if (!compiled.ok()) return compiled.status();
  const Json messages = Json::array();
  ChatTemplateInputs inputs;
  inputs.messages = &messages;
  return (*compiled)->Render(inputs).status();
}

struct Hostile {
  const char* name;
  std::string source;
};

std::vector<Hostile> ExhaustingTemplates() {
  constexpr char kForever[] = "{% for a in range(100000) %}{% for b in range(100000) %}";
  const std::string end = "{% endfor %}{% endfor %}";
  const std::string large = "{% set s = 'ab' * 4000000 %}";
  return {
      {"endless loop", absl::StrCat(kForever, end)},
      {"endless printing", absl::StrCat(kForever, "text to print", end)},
      {"range", "{{ range(10 ** 9) }}"},
      {"range down", "{{ range(0, 0 - 10 ** 18, -1) }}"},
      {"string doubling",
       "{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}"
       "{% endfor %}"},
      {"string doubling by ~",
       "{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}"
       "{% endfor %}"},
      {"list doubling",
       "{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}"
       "{% endfor %}"},
      {"repetition", "{{ 'a' * 10 ** 9 }}"},
      {"repetition beyond 64 bits", "{{ 'abcd' * 9223372036854775807 }}"},
      {"list repetition", "{{ [1, 2, 3] * 9223372036854775807 }}"},
      {"output", absl::StrCat(large, "{{ s }}{{ s }}{{ s }}")},
      {"captured output", absl::StrCat(large, "{% set t %}{{ s }}{{ s }}{% endset %}{{ t }}")},
      {"kept strings", absl::StrCat("{% set ns = namespace(l=[]) %}{% for i in range(100000) %}"
                                    "{% set ns.l = ns.l + ['x' * 1000] %}{% endfor %}")},
      {"work on a large string",
       absl::StrCat(large,
                    "{% for i in range(100000) %}{% if s == s ~ 'a' %}{% endif %}{% endfor %}")},
      {"search in a large string",
       absl::StrCat(large,
                    "{% for i in range(100000) %}{% if 'b' * 99 in s %}{% endif %}{% endfor %}")},
      {"quadratic search", absl::StrCat(large, "{{ s.rfind('b' + 'ab' * 2000000) }}")},
      {"quadratic strip", absl::StrCat(large, "{{ s.strip(s) }}")},
      {"characters", absl::StrCat(large, "{{ s|list }}")},
      {"pieces", absl::StrCat(large, "{{ s.split('a') }}")},
      {"replacement", absl::StrCat(large, "{{ s|replace('a', 'x' * 100) }}")},
      {"join", "{{ range(100000)|join('x' * 1000) }}"},
      {"indent", "{{ ('\\n' * 100000)|indent(100000, blank=true) }}"},
      {"indent width", "{{ 'a'|indent(10 ** 15) }}"},
      {"fill", "{{ [1]|batch(10 ** 15, 0) }}"},
      {"shared value printed as a tree",
       "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}"
       "{% endfor %}{{ ns.l|tojson }}"},
      {"shared value represented as a tree",
       "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}"
       "{% endfor %}{{ ns.l }}"},
      {"shared value compared as a tree",
       "{% set ns = namespace(l=[1], m=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}"
       "{% set ns.m = [ns.m, ns.m] %}{% endfor %}{{ ns.l == ns.m }}"},
      {"deep value",
       "{% set ns = namespace(l=1) %}{% for i in range(100000) %}{% set ns.l = [ns.l] %}{% endfor "
       "%}"},
      {"deep value through loops",
       "{% set ns = namespace(l=1) %}{% for i in range(100000) %}{% for x in [ns.l] %}"
       "{% set ns.l = loop %}{% endfor %}{% endfor %}"},
      {"deep value through methods",
       "{% set ns = namespace(l=[1]) %}{% for i in range(100000) %}{% set ns.l = [ns.l.count] %}"
       "{% endfor %}"},
      {"macro recursion", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"},
      {"mutual recursion",
       "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}"},
      {"wide recursion",
       "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(50) "
       "}}"},
      {"caller recursion",
       "{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{% endmacro %}{{ m() }}"},
      {"deep recursion in deep expressions",
       absl::StrCat("{% macro m() %}{{ ", Repeat("[", 20), "m()", Repeat("]", 20),
                    " }}{% endmacro %}{{ m() }}")},
      {"namespaces", absl::StrCat(kForever, "{% set x = namespace(a=1) %}", end)},
      {"sorting", "{{ (range(100000)|list + range(100000)|list)|sort|sort|sort }}"},
      {"sorting by attribute",
       "{% for i in range(100) %}{% set x = range(100000)|map('string')|sort %}{% endfor %}"},
      {"unique", "{{ (range(100000)|list)|unique|list }}"},
      {"filters of filters", absl::StrCat(kForever, "{% set x = 'a'|upper|lower|title %}", end)},
  };
}

TEST(HostileTemplates, EndAtABound) {
  for (const Hostile& hostile : ExhaustingTemplates()) {
    const absl::Status status = RenderStatus(hostile.source);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted)
        << hostile.name << ": " << status;
    EXPECT_THAT(std::string(status.message()), ::testing::StartsWith("chat template line "))
        << hostile.name;
  }
}

TEST(HostileTemplates, DeepSourceIsRefused) {
  constexpr size_t kDeep = 10'000;
  const Hostile kTemplates[] = {
      {"parentheses", absl::StrCat("{{ ", Repeat("(", kDeep), "1", Repeat(")", kDeep), " }}")},
      {"lists", absl::StrCat("{{ ", Repeat("[", kDeep), Repeat("]", kDeep), " }}")},
      {"open lists", absl::StrCat("{{ ", Repeat("[", kDeep))},
      {"dicts", absl::StrCat("{{ ", Repeat("{'a':", kDeep), "1", Repeat("}", kDeep), " }}")},
      {"calls", absl::StrCat("{{ ", Repeat("f(", kDeep), Repeat(")", kDeep), " }}")},
      {"signs", absl::StrCat("{{ ", Repeat("- ", kDeep), "1 }}")},
      {"nots", absl::StrCat("{{ ", Repeat("not ", kDeep), "1 }}")},
      {"attributes", absl::StrCat("{{ x", Repeat(".a", kDeep), " }}")},
      {"subscripts", absl::StrCat("{{ x", Repeat("[0]", kDeep), " }}")},
      {"filters", absl::StrCat("{{ x", Repeat("|e", kDeep), " }}")},
      {"tests", absl::StrCat("{{ x", Repeat(" is defined", kDeep), " }}")},
      {"conditionals", absl::StrCat("{{ 1", Repeat(" if 1 else 1", kDeep), " }}")},
      {"conditionals without else", absl::StrCat("{{ 1", Repeat(" if 1", kDeep), " }}")},
      {"ifs", absl::StrCat(Repeat("{% if 1 %}", kDeep), Repeat("{% endif %}", kDeep))},
      {"fors", absl::StrCat(Repeat("{% for a in [1] %}", kDeep), Repeat("{% endfor %}", kDeep))},
      {"macros", absl::StrCat(Repeat("{% macro m() %}", kDeep), Repeat("{% endmacro %}", kDeep))},
  };
  for (const Hostile& hostile : kTemplates) {
    const absl::Status status = RenderStatus(hostile.source);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << hostile.name << ": " << status;
  }
}

TEST(HostileTemplates, LongSourceIsNoProblem) {
  constexpr size_t kLong = 10'000;
  const Hostile kTemplates[] = {
      {"sum", absl::StrCat("{{ 1", Repeat(" + 1", kLong), " }}")},
      {"text sum", absl::StrCat("{{ 'a'", Repeat(" + 'a'", kLong), " }}")},
      {"comparisons", absl::StrCat("{{ 1", Repeat(" <= 1", kLong), " }}")},
      {"logic", absl::StrCat("{{ 1", Repeat(" and 1", kLong), " }}")},
      {"elifs", absl::StrCat("{% if 0 %}", Repeat("{% elif 0 %}", kLong), "{% endif %}")},
      {"list", absl::StrCat("{{ [", Repeat("1,", kLong), "] }}")},
      {"variables",
       [] {
         std::string source;
         for (size_t i = 0; i < kLong; ++i) absl::StrAppend(&source, "{% set v", i, " = 1 %}");
         return source;
       }()},
      {"text", std::string(ChatTemplate::kSourceBytesMax, '{')},
  };
  for (const Hostile& hostile : kTemplates) {
    // "{{{{…" is no template, but refusing it must not take long either.
    const absl::Status status = RenderStatus(hostile.source);
    EXPECT_TRUE(status.ok() || hostile.name == std::string("text")) << hostile.name << status;
  }
}

}  // namespace
}  // namespace baton::model
