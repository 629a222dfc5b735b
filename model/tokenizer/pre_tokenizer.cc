#define PCRE2_CODE_UNIT_WIDTH 8
#include "model/tokenizer/pre_tokenizer.h"

#include <pcre2.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"

namespace baton::model {
namespace {

// White space as the models' own tokenizers have it (Unicode's White_Space). PCRE2's \s also has
// U+180E, so the patterns below spell it out; written into a character class.
#define SPACE "\\t-\\r\\x{85}\\p{Z}"

#define CONTRACTIONS "'s|'t|'re|'ve|'m|'ll|'d"

constexpr absl::string_view kGpt2Pattern =
    CONTRACTIONS "| ?\\p{L}+| ?\\p{N}+| ?[^" SPACE
                 "\\p{L}\\p{N}]+"
                 "|[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+";

// Digits are cut out first, one by one, and what lies between is then split as GPT-2 does; so a
// digit ends the text for the lookahead.
constexpr absl::string_view kSmollmPattern = "\\p{N}|" CONTRACTIONS "| ?\\p{L}+| ?[^" SPACE
                                             "\\p{L}\\p{N}]+"
                                             "|[" SPACE "]+(?![^" SPACE "\\p{N}])|[" SPACE "]+";

#define LLAMA3_WITH_DIGITS(digits)                                            \
  "(?i:" CONTRACTIONS ")|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^" SPACE \
  "\\p{L}\\p{N}]+[\\r\\n]*|[" SPACE                                           \
  "]*[\\r\\n]+"                                                               \
  "|[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+"

constexpr absl::string_view kLlama3Pattern = LLAMA3_WITH_DIGITS("\\p{N}{1,3}");
constexpr absl::string_view kQwen2Pattern = LLAMA3_WITH_DIGITS("\\p{N}");

#undef LLAMA3_WITH_DIGITS
#undef CONTRACTIONS
#undef SPACE

constexpr PreTokenizerFamily kFamilies[] = {
    {"gpt-2", kGpt2Pattern, false, false},    {"llama-bpe", kLlama3Pattern, true, true},
    {"llama-v3", kLlama3Pattern, true, true}, {"llama3", kLlama3Pattern, true, true},
    {"qwen2", kQwen2Pattern, false, false},   {"deepseek-r1-qwen", kQwen2Pattern, false, false},
    {"smollm", kSmollmPattern, false, false},
};

}  // namespace

absl::StatusOr<const PreTokenizerFamily*> FindPreTokenizerFamily(absl::string_view name) {
  for (const PreTokenizerFamily& family : kFamilies) {
    if (family.name == name) return &family;
  }
  const auto append_name = [](std::string* out, const PreTokenizerFamily& family) {
    absl::StrAppend(out, family.name);
  };
  return absl::InvalidArgumentError(absl::StrCat(
      "tokenizer.ggml.pre is ", name.empty() ? "missing" : absl::StrCat("\"", name, "\""),
      "; known are ", absl::StrJoin(kFamilies, ", ", append_name)));
}

PreTokenizer::PreTokenizer(const PreTokenizerFamily& family) {
  int error = 0;
  size_t error_offset = 0;
  // Anchored: the patterns are total, each match begins where the last one ended.
  code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(family.pattern.data()), family.pattern.size(),
                        PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &error, &error_offset, nullptr);
  CHECK(code_ != nullptr) << family.name << ": error " << error << " at " << error_offset;
  // Where no executable memory is to be had, pcre2_match() interprets: the same matches, slower.
  pcre2_jit_compile(code_, PCRE2_JIT_COMPLETE);
  match_context_ = pcre2_match_context_create(nullptr);
  CHECK(match_context_ != nullptr);
  pcre2_set_match_limit(match_context_, kMatchLimit);
}

PreTokenizer::~PreTokenizer() {
  pcre2_match_context_free(match_context_);
  pcre2_code_free(code_);
}

absl::Status PreTokenizer::Split(absl::string_view text,
                                 absl::FunctionRef<void(absl::string_view pre_token)> visit) const {
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(
      pcre2_match_data_create(1, nullptr), &pcre2_match_data_free);
  CHECK(match != nullptr);
  size_t begin = 0;
  while (begin < text.size()) {
    const int result = pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                   begin, PCRE2_NO_UTF_CHECK, match.get(), match_context_);
    if (result == PCRE2_ERROR_MATCHLIMIT || result == PCRE2_ERROR_JIT_STACKLIMIT ||
        result == PCRE2_ERROR_HEAPLIMIT || result == PCRE2_ERROR_DEPTHLIMIT) {
      return absl::ResourceExhaustedError(
          absl::StrCat("splitting the text at byte ", begin, " takes too many steps"));
    }
    CHECK(result >= 0) << "pattern error " << result << " at " << begin;
    const size_t end = pcre2_get_ovector_pointer(match.get())[1];
    CHECK_LT(begin, end);
    visit(text.substr(begin, end - begin));
    begin = end;
  }
  return absl::OkStatus();
}

}  // namespace baton::model
