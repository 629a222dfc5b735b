// The tokenizer on hostile text and hostile vocabularies: ids are legal, text survives, streams
// hold whole characters.
//
// The first byte picks a vocabulary's family and whether special tokens are parsed; up to the first
// NUL the input is a list of merges and special tokens, one a line; the rest is the text.
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/utf8.h"
#include "model/tokenizer/tokenizer.h"
#include "tests/model/tokenizer/small_vocabulary.h"

namespace {

using baton::model::IncrementalDetokenizer;
using baton::model::Tokenizer;
using baton::model::TokenizerData;

constexpr const char* kFamilies[] = {"smollm", "llama-bpe", "qwen2", "gpt-2", "nonsense"};

TokenizerData MakeVocabulary(uint8_t choice, absl::string_view lines) {
  TokenizerData data = baton::model::SmallVocabulary(kFamilies[choice % std::size(kFamilies)]);
  data.add_bos = false;
  for (const absl::string_view line : absl::StrSplit(lines, '\n', absl::SkipEmpty())) {
    const size_t space = line.find(' ');
    if (space == absl::string_view::npos) {
      baton::model::AddSpecial(data, std::string(line), line[0] % 7);
    } else {
      baton::model::AddMerge(data, std::string(line.substr(0, space)),
                             std::string(line.substr(space + 1)));
    }
  }
  return data;
}

// What may be sent never has half a character, and all together is the text.
void CheckStream(const Tokenizer& tokenizer, const std::vector<uint32_t>& tokens,
                 absl::string_view text) {
  IncrementalDetokenizer detokenizer(tokenizer, true);
  std::string streamed;
  for (const uint32_t token : tokens) {
    const std::string piece = detokenizer.Append(token);
    CHECK(baton::base::FindInvalidUtf8(piece) == absl::string_view::npos);
    streamed += piece;
  }
  streamed += detokenizer.Flush();
  CHECK(streamed == text) << "'" << streamed << "' for '" << text << "'";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const absl::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t split = std::min(input.find('\0'), input.size());
  const auto tokenizer = Tokenizer::Create(MakeVocabulary(data[0] >> 1, input.substr(0, split)));
  if (!tokenizer.ok()) return 0;
  const absl::string_view text = input.substr(std::min(split + 1, input.size()));
  const Tokenizer::EncodeOptions options = {.parse_special = (data[0] & 1) != 0};
  const auto tokens = (*tokenizer)->Encode(text, options);
  const bool is_valid = baton::base::FindInvalidUtf8(text) == absl::string_view::npos;
  CHECK(tokens.ok() == is_valid) << tokens.status();
  if (!is_valid) {
    IncrementalDetokenizer detokenizer(**tokenizer, true);
    const std::string shown = absl::StrCat(detokenizer.AppendBytes(text), detokenizer.Flush());
    CHECK(baton::base::FindInvalidUtf8(shown) == absl::string_view::npos);
    return 0;
  }
  CheckStream(**tokenizer, *tokens, text);
  return 0;
}

extern "C" void BatonFuzzSeeds(std::vector<std::string>* seeds) {
  const std::string merges = "t h\nth e\nĠ t\nĠt he\n<end>\na a\naa aa\ne r";
  for (char choice = 0; choice < 10; ++choice) {
    seeds->push_back(absl::StrCat(std::string(1, choice), merges, std::string(1, '\0'),
                                  "the <end>aaaaa 1234 안녕 😊 it's\r\n\t  x"));
  }
}
