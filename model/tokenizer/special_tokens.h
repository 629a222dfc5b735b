// Finds tokens that stand for themselves in text ("<|im_end|>"), before the text is split into
// words.
//
// Immutable after the last Add(): any thread may search.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace baton::model {

class SpecialTokens {
 public:
  SpecialTokens();

  // `control`: found only when control tokens are asked for. REQUIRES: the spelling is not empty.
  void Add(absl::string_view spelling, uint32_t token, bool control);

  struct Match {
    uint32_t token;
    size_t begin, end;  // Bytes of the text.
  };
  // The leftmost, then longest match at or after `from`.
  std::optional<Match> Find(absl::string_view text, size_t from, bool find_control) const;

 private:
  // A node of the trie over the spellings' bytes. Node 0 is the root.
  struct Node {
    std::optional<uint32_t> token;
    bool control = false;
  };
  std::optional<Match> LongestAt(absl::string_view text, size_t begin, bool find_control) const;

  std::vector<Node> nodes_;
  absl::flat_hash_map<uint64_t, uint32_t> children_;  // (node << 8 | byte) to node.
  std::array<bool, 256> starts_{};                    // Bytes with which some spelling starts.
};

}  // namespace baton::model
