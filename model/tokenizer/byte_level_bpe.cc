#include "model/tokenizer/byte_level_bpe.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "base/utf8.h"
#include "model/tokenizer/byte_alphabet.h"

namespace baton::model {
namespace {

// tokenizer.ggml.token_type.
enum class TokenType : uint32_t { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };

absl::StatusOr<TokenType> TypeOf(const TokenizerData& data, size_t token) {
  if (data.types.empty()) return TokenType::NORMAL;
  const uint32_t type = data.types[token];
  if (type < static_cast<uint32_t>(TokenType::NORMAL) ||
      type > static_cast<uint32_t>(TokenType::BYTE)) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokenizer.ggml.token_type[", token, "] is ", type, "; legal are 1 to 6"));
  }
  return static_cast<TokenType>(type);
}

absl::Status CheckId(absl::string_view key, std::optional<uint32_t> id, size_t count) {
  if (!id || *id < count) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(key, " is ", *id, "; legal is below ", count, ", the number of tokens"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ByteLevelBpe>> ByteLevelBpe::Create(const TokenizerData& data) {
  ASSIGN_OR_RETURN(const PreTokenizerFamily* family, FindPreTokenizerFamily(data.pre));
  auto tokenizer = std::unique_ptr<ByteLevelBpe>(new ByteLevelBpe(*family));
  RETURN_IF_ERROR(tokenizer->AddTokens(data));
  RETURN_IF_ERROR(tokenizer->AddMerges(data));
  RETURN_IF_ERROR(tokenizer->SetEnds(data));
  tokenizer->spelled_.clear();  // Its keys are the caller's.
  return tokenizer;
}

absl::Status ByteLevelBpe::AddTokens(const TokenizerData& data) {
  const size_t count = data.tokens.size();
  if (count == 0) return absl::InvalidArgumentError("tokenizer.ggml.tokens is empty");
  if (!data.types.empty() && data.types.size() != count) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tokenizer.ggml.token_type has ", data.types.size(), " entries for ", count, " tokens"));
  }
  bytes_.resize(count);
  special_.resize(count);
  spelled_.reserve(count);
  if (family_.whole_words_first) words_.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const uint32_t token = static_cast<uint32_t>(i);
    const std::string& spelling = data.tokens[i];
    if (base::FindInvalidUtf8(spelling) != absl::string_view::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat("tokenizer.ggml.tokens[", i, "] is not valid UTF-8"));
    }
    ASSIGN_OR_RETURN(const TokenType type, TypeOf(data, i));
    special_[i] = type == TokenType::CONTROL || type == TokenType::UNKNOWN;
    const bool stands_for_itself = special_[i] || type == TokenType::USER_DEFINED;
    if (stands_for_itself || !BytesOfSpelling(spelling, bytes_[i])) bytes_[i] = spelling;
    token_bytes_max_ = std::max(token_bytes_max_, bytes_[i].size());
    if (stands_for_itself && !spelling.empty()) special_tokens_.Add(spelling, token, special_[i]);
    if (!special_[i]) spelled_.try_emplace(spelling, token);
  }
  if (family_.whole_words_first) {
    for (size_t i = 0; i < count; ++i) {
      if (!special_[i]) words_.try_emplace(bytes_[i], static_cast<uint32_t>(i));
    }
  }
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const auto found = spelled_.find(ByteSpelling(static_cast<uint8_t>(byte)));
    if (found != spelled_.end()) token_of_byte_[byte] = found->second;
  }
  return absl::OkStatus();
}

absl::Status ByteLevelBpe::AddMerges(const TokenizerData& data) {
  merges_.Reserve(data.merges.size());
  std::string joined;
  for (size_t i = 0; i < data.merges.size(); ++i) {
    const absl::string_view merge = data.merges[i];
    const size_t space = merge.find(' ');
    const absl::string_view left = merge.substr(0, space);
    const absl::string_view right =
        space == absl::string_view::npos ? absl::string_view() : merge.substr(space + 1);
    joined = absl::StrCat(left, right);
    const auto left_token = spelled_.find(left);
    const auto right_token = spelled_.find(right);
    const auto joined_token = spelled_.find(joined);
    if (left.empty() || right.empty() || left_token == spelled_.end() ||
        right_token == spelled_.end() || joined_token == spelled_.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tokenizer.ggml.merges[", i, "] is \"", merge,
                       "\"; legal are two tokens with a space between that join to a third"));
    }
    merges_.Add({left_token->second, right_token->second}, joined_token->second);
  }
  return absl::OkStatus();
}

absl::Status ByteLevelBpe::SetEnds(const TokenizerData& data) {
  RETURN_IF_ERROR(CheckId("tokenizer.ggml.bos_token_id", data.bos_id, bytes_.size()));
  RETURN_IF_ERROR(CheckId("tokenizer.ggml.eos_token_id", data.eos_id, bytes_.size()));
  bos_id_ = data.bos_id;
  eos_id_ = data.eos_id;
  adds_bos_ = data.add_bos.value_or(family_.adds_bos && bos_id_.has_value());
  adds_eos_ = data.add_eos.value_or(false);
  if ((adds_bos_ && !bos_id_) || (adds_eos_ && !eos_id_)) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokenizer.ggml.add_", adds_bos_ && !bos_id_ ? "bos" : "eos",
                     "_token is true, but the file names no such token"));
  }
  return absl::OkStatus();
}

const std::string& ByteLevelBpe::token_bytes(uint32_t token) const {
  CHECK_LT(token, bytes_.size());
  return bytes_[token];
}

bool ByteLevelBpe::is_special(uint32_t token) const {
  CHECK_LT(token, special_.size());
  return special_[token];
}

uint32_t ByteLevelBpe::bos_id() const {
  CHECK(adds_bos_);
  return *bos_id_;
}

absl::StatusOr<std::vector<uint32_t>> ByteLevelBpe::Encode(absl::string_view text,
                                                           const EncodeOptions& options) const {
  if (text.size() > kTextBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("text has ", text.size(), " bytes; legal are up to ", kTextBytesMax));
  }
  if (const size_t offset = base::FindInvalidUtf8(text); offset != absl::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("text is not valid UTF-8 at byte offset ", offset));
  }
  std::vector<uint32_t> tokens;
  Scratch scratch;
  size_t begin = 0;
  while (const auto special = special_tokens_.Find(text, begin, options.parse_special)) {
    RETURN_IF_ERROR(AppendText(text.substr(begin, special->begin - begin), scratch, tokens));
    tokens.push_back(special->token);
    begin = special->end;
  }
  RETURN_IF_ERROR(AppendText(text.substr(begin), scratch, tokens));
  if (options.add_special) {
    if (adds_bos_ && (tokens.empty() || tokens.front() != *bos_id_)) {
      tokens.insert(tokens.begin(), *bos_id_);
    }
    if (adds_eos_ && (tokens.empty() || tokens.back() != *eos_id_)) tokens.push_back(*eos_id_);
  }
  return tokens;
}

absl::Status ByteLevelBpe::AppendText(absl::string_view text, Scratch& scratch,
                                      std::vector<uint32_t>& tokens) const {
  return splitter_.Split(text, [&](absl::string_view word) { AppendWord(word, scratch, tokens); });
}

void ByteLevelBpe::AppendWord(absl::string_view word, Scratch& scratch,
                              std::vector<uint32_t>& tokens) const {
  if (const auto whole = words_.find(word); whole != words_.end()) {
    tokens.push_back(whole->second);
    return;
  }
  scratch.word.clear();
  for (const char byte : word) {
    const std::optional<uint32_t>& token = token_of_byte_[static_cast<uint8_t>(byte)];
    if (token) scratch.word.push_back(*token);
  }
  merges_.Merge(scratch.word, scratch.merges);
  tokens.insert(tokens.end(), scratch.word.begin(), scratch.word.end());
}

}  // namespace baton::model
