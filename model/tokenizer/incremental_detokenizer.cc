#include "base/utf8.h"
#include "model/tokenizer/tokenizer.h"

namespace baton::model {

IncrementalDetokenizer::IncrementalDetokenizer(const Tokenizer& tokenizer, bool keep_special)
    : tokenizer_(tokenizer), keep_special_(keep_special) {}

std::string IncrementalDetokenizer::Append(uint32_t token) {
  if (!keep_special_ && tokenizer_.is_special(token)) return "";
  return AppendBytes(tokenizer_.token_bytes(token));
}

std::string IncrementalDetokenizer::AppendBytes(absl::string_view bytes) {
  pending_.append(bytes.data(), bytes.size());
  std::string ready;
  absl::string_view rest = pending_;
  while (!rest.empty()) {
    const base::Utf8Character character = base::ReadUtf8Character(rest);
    if (character.state == base::Utf8State::INCOMPLETE) break;
    const absl::string_view shown = character.state == base::Utf8State::VALID
                                        ? rest.substr(0, character.byte_count)
                                        : base::kUtf8Replacement;
    ready.append(shown.data(), shown.size());
    rest.remove_prefix(character.byte_count);
  }
  pending_.erase(0, pending_.size() - rest.size());
  return ready;
}

std::string IncrementalDetokenizer::Flush() {
  if (pending_.empty()) return "";
  pending_.clear();
  return std::string(base::kUtf8Replacement);
}

}  // namespace baton::model
