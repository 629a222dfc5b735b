// A vocabulary small enough to reason about: the 256 bytes (id = byte), then one token a merge,
// then special tokens.
#pragma once

#include <string>
#include <vector>

#include "model/tokenizer/byte_alphabet.h"
#include "model/weights/model_file.h"

namespace baton::model {

inline constexpr uint32_t kNormal = 1, kControl = 3, kUserDefined = 4;

inline TokenizerData SmallVocabulary(const std::string& pre) {
  TokenizerData data;
  data.model = "gpt2";
  data.pre = pre;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    data.tokens.push_back(ByteSpelling(static_cast<uint8_t>(byte)));
    data.types.push_back(kNormal);
  }
  return data;
}

// Both sides in plain ASCII or as BPE spells them ("Ġ" for a space). Returns the new token's id.
inline uint32_t AddMerge(TokenizerData& data, const std::string& left, const std::string& right) {
  data.merges.push_back(left + " " + right);
  data.tokens.push_back(left + right);
  data.types.push_back(kNormal);
  return static_cast<uint32_t>(data.tokens.size() - 1);
}

inline uint32_t AddSpecial(TokenizerData& data, const std::string& spelling, uint32_t type) {
  data.tokens.push_back(spelling);
  data.types.push_back(type);
  return static_cast<uint32_t>(data.tokens.size() - 1);
}

}  // namespace baton::model
