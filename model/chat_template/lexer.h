// Cuts a template's source into text and the tokens of its tags, and applies the rules on white
// space around tags.
//
// As transformers sets Jinja up: trim_blocks and lstrip_blocks are on, one newline at the end of
// the source is dropped.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "model/chat_template/position.h"

namespace baton::model::jinja {

enum class TokenKind {
  TEXT,            // Outside of tags; `text` is what to print.
  BLOCK_BEGIN,     // {%
  BLOCK_END,       // %}
  VARIABLE_BEGIN,  // {{
  VARIABLE_END,    // }}
  NAME,
  STRING,    // `text` is its value.
  INTEGER,   // `text` is as written.
  FLOAT,     // `text` is as written.
  OPERATOR,  // `text` is the operator.
  END,       // Of the source; always the last.
};

struct Token {
  TokenKind kind;
  std::string text;
  Position position;
};

// INVALID_ARGUMENT naming line and column. REQUIRES: `source` is valid UTF-8.
absl::StatusOr<std::vector<Token>> Tokenize(absl::string_view source);

}  // namespace baton::model::jinja
