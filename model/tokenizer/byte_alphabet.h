// GPT-2's byte alphabet: vocabularies of byte-level BPE spell every byte as one printable character
// (space is "Ġ").
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace baton::model {

// The character that stands for `byte`, in UTF-8.
std::string ByteSpelling(uint8_t byte);

// The bytes that `spelling` stands for. False when it has a character outside the alphabet; `bytes`
// is then unspecified. REQUIRES: `spelling` is valid UTF-8.
bool BytesOfSpelling(absl::string_view spelling, std::string& bytes);

}  // namespace baton::model
