#include "model/tokenizer/special_tokens.h"

#include "base/check.h"

namespace baton::model {
namespace {

uint64_t ChildKey(uint32_t node, char byte) {
  return uint64_t{node} << 8 | static_cast<uint8_t>(byte);
}

}  // namespace

SpecialTokens::SpecialTokens() : nodes_(1) {}

void SpecialTokens::Add(absl::string_view spelling, uint32_t token, bool control) {
  CHECK(!spelling.empty());
  starts_[static_cast<uint8_t>(spelling[0])] = true;
  uint32_t node = 0;
  for (const char byte : spelling) {
    const auto [child, added] =
        children_.try_emplace(ChildKey(node, byte), static_cast<uint32_t>(nodes_.size()));
    if (added) nodes_.emplace_back();
    node = child->second;
  }
  nodes_[node] = {token, control};
}

std::optional<SpecialTokens::Match> SpecialTokens::Find(absl::string_view text, size_t from,
                                                        bool find_control) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!starts_[static_cast<uint8_t>(text[begin])]) continue;
    if (auto match = LongestAt(text, begin, find_control)) return match;
  }
  return std::nullopt;
}

std::optional<SpecialTokens::Match> SpecialTokens::LongestAt(absl::string_view text, size_t begin,
                                                             bool find_control) const {
  std::optional<Match> longest;
  uint32_t node = 0;
  for (size_t end = begin; end < text.size(); ++end) {
    const auto child = children_.find(ChildKey(node, text[end]));
    if (child == children_.end()) break;
    node = child->second;
    const Node& reached = nodes_[node];
    if (reached.token && (find_control || !reached.control)) {
      longest = Match{*reached.token, begin, end + 1};
    }
  }
  return longest;
}

}  // namespace baton::model
