// Cuts text into pre-tokens, which BPE never merges across: words with their leading space, digits,
// punctuation, spaces.
//
// Immutable after Create(): any thread may split. Time is linear in the text.
#pragma once

#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

struct pcre2_real_code_8;
struct pcre2_real_match_context_8;

namespace baton::model {

// How a family of models splits, and what its tokenizer does where a file says nothing.
struct PreTokenizerFamily {
  absl::string_view name;  // As in tokenizer.ggml.pre.
  absl::string_view pattern;
  bool whole_words_first;  // A pre-token that is in the vocabulary is not built up from merges.
  bool adds_bos;
};

// INVALID_ARGUMENT when no family has this name; the message lists all that there are. A guess
// would give other tokens than the model was trained on, and nobody would notice.
absl::StatusOr<const PreTokenizerFamily*> FindPreTokenizerFamily(absl::string_view name);

class PreTokenizer {
 public:
  explicit PreTokenizer(const PreTokenizerFamily& family);
  ~PreTokenizer();
  PreTokenizer(const PreTokenizer&) = delete;
  PreTokenizer& operator=(const PreTokenizer&) = delete;

  // Hands the pre-tokens of `text` to `visit`, in order; together they are the text.
  // RESOURCE_EXHAUSTED when the pattern's match limit is reached. REQUIRES: `text` is valid UTF-8.
  absl::Status Split(absl::string_view text,
                     absl::FunctionRef<void(absl::string_view pre_token)> visit) const;

 private:
  // Backtracking of one match; the longest legal text of spaces needs about one step a byte.
  static constexpr uint32_t kMatchLimit = 1u << 27;

  pcre2_real_code_8* code_;
  pcre2_real_match_context_8* match_context_;
};

}  // namespace baton::model
