// Text to token ids and back: byte-level BPE as GGUF files carry it (tokenizer.ggml.model "gpt2").
//
// Immutable after Create(): any thread may use it. Time and memory are linear in the text but for
// the merges of one pre-token, which are O(n log n).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "model/weights/model_file.h"

namespace baton::model {

class Tokenizer {
 public:
  // INVALID_ARGUMENT when the data is inconsistent, or its model or pre-tokenizer is not known
  // (both named).
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Create(const TokenizerData& data);
  virtual ~Tokenizer() = default;

  // More tokens than any context takes. Bounds the working memory, about 32 bytes a byte if all of
  // the text is one word.
  static constexpr size_t kTextBytesMax = 8 << 20;

  struct EncodeOptions {
    // BOS / EOS, if the model asks for them and the text does not begin / end with them already:
    // never twice.
    bool add_special = false;
    // Control tokens spelled out in the text become their ids. (User-defined tokens, which are
    // text, always do.)
    bool parse_special = false;
  };
  // INVALID_ARGUMENT when `text` is not valid UTF-8 (with the byte offset), or longer than
  // kTextBytesMax.
  virtual absl::StatusOr<std::vector<uint32_t>> Encode(absl::string_view text,
                                                       const EncodeOptions& options) const = 0;

  virtual uint32_t vocabulary_size() const = 0;
  // Bytes of a token; special tokens give their spelling. REQUIRES: token < vocabulary_size().
  virtual const std::string& token_bytes(uint32_t token) const = 0;
  // The longest token's: a text of n bytes has at least n / token_bytes_max() tokens. At least 1.
  virtual size_t token_bytes_max() const = 0;
  // Control and unknown tokens: they add no text to an answer.
  virtual bool is_special(uint32_t token) const = 0;
  virtual std::string bos_text() const = 0;  // Spelling of BOS / EOS, or "", for chat templates.
  virtual std::string eos_text() const = 0;
  virtual bool adds_bos() const = 0;
  virtual uint32_t bos_id() const = 0;  // REQUIRES: adds_bos().
};

// Turns a stream of tokens into text that is cut at whole characters only: bytes are held back
// until their character is complete, and U+FFFD is sent as soon as a byte can no longer become part
// of one. Thread-compatible, one per answer.
class IncrementalDetokenizer {
 public:
  // `keep_special`: spell special tokens out instead of dropping them.
  IncrementalDetokenizer(const Tokenizer& tokenizer, bool keep_special);

  std::string Append(uint32_t token);  // What may be sent now.
  std::string AppendBytes(absl::string_view bytes);
  std::string Flush();  // At the end: U+FFFD for an incomplete character, or "".

 private:
  const Tokenizer& tokenizer_;
  bool keep_special_;
  std::string pending_;  // A proper prefix of one character, at most 3 bytes.
};

}  // namespace baton::model
