// The tokenizer of GGUF's "gpt2" model: special tokens are cut out, the rest is split into
// pre-tokens, whose bytes merge.
//
// No Unicode normalisation is done. A byte for which the vocabulary has no token (some lack rare
// control characters) is left out, as the models' reference implementation does.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "model/tokenizer/bpe_merges.h"
#include "model/tokenizer/pre_tokenizer.h"
#include "model/tokenizer/special_tokens.h"
#include "model/tokenizer/tokenizer.h"

namespace baton::model {

class ByteLevelBpe final : public Tokenizer {
 public:
  static absl::StatusOr<std::unique_ptr<ByteLevelBpe>> Create(const TokenizerData& data);

  absl::StatusOr<std::vector<uint32_t>> Encode(absl::string_view text,
                                               const EncodeOptions& options) const override;

  uint32_t vocabulary_size() const override { return static_cast<uint32_t>(bytes_.size()); }
  const std::string& token_bytes(uint32_t token) const override;
  size_t token_bytes_max() const override { return token_bytes_max_; }
  bool is_special(uint32_t token) const override;
  std::string bos_text() const override { return bos_id_ ? bytes_[*bos_id_] : ""; }
  std::string eos_text() const override { return eos_id_ ? bytes_[*eos_id_] : ""; }
  bool adds_bos() const override { return adds_bos_; }
  uint32_t bos_id() const override;

 private:
  // Working memory of one Encode().
  struct Scratch {
    std::vector<uint32_t> word;
    BpeMerges::Scratch merges;
  };

  explicit ByteLevelBpe(const PreTokenizerFamily& family) : family_(family), splitter_(family) {}

  absl::Status AddTokens(const TokenizerData& data);
  absl::Status AddMerges(const TokenizerData& data);
  absl::Status SetEnds(const TokenizerData& data);

  absl::Status AppendText(absl::string_view text, Scratch& scratch,
                          std::vector<uint32_t>& tokens) const;
  void AppendWord(absl::string_view word, Scratch& scratch, std::vector<uint32_t>& tokens) const;

  const PreTokenizerFamily& family_;
  PreTokenizer splitter_;
  SpecialTokens special_tokens_;
  BpeMerges merges_;
  std::vector<std::string> bytes_;  // Indexed by token.
  std::vector<bool> special_;       // Indexed by token.
  size_t token_bytes_max_ = 1;
  // Tokens that BPE can make, by the file's spelling; only while the tokenizer is built.
  absl::flat_hash_map<absl::string_view, uint32_t> spelled_;
  absl::flat_hash_map<absl::string_view, uint32_t> words_;  // By bytes; views of bytes_.
  std::array<std::optional<uint32_t>, 256> token_of_byte_;
  std::optional<uint32_t> bos_id_, eos_id_;
  bool adds_bos_ = false;
  bool adds_eos_ = false;
};

}  // namespace baton::model
