#include "model/tokenizer/bpe_merges.h"

#include <algorithm>

namespace baton::model {
namespace {

using Candidate = BpeMerges::Scratch::Candidate;
using Symbol = BpeMerges::Scratch::Symbol;

constexpr uint32_t kNone = ~0u;
constexpr uint32_t kGone = ~0u;  // Token of a symbol that was merged into its left neighbour.

uint64_t MergeKey(BpeMerges::Pair pair) { return uint64_t{pair.left} << 32 | pair.right; }

bool IsWorse(const Candidate& a, const Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
}

bool IsStale(const Candidate& candidate, const std::vector<Symbol>& symbols) {
  const Symbol& left = symbols[candidate.left];
  return left.token != candidate.pair.left || left.next == kNone ||
         symbols[left.next].token != candidate.pair.right;
}

}  // namespace

bool BpeMerges::Add(Pair pair, uint32_t merged) {
  const uint32_t rank = static_cast<uint32_t>(merges_.size());
  return merges_.try_emplace(MergeKey(pair), Merged{rank, merged}).second;
}

void BpeMerges::PushCandidate(uint32_t left, Scratch& scratch) const {
  const Symbol& symbol = scratch.symbols[left];
  if (symbol.next == kNone) return;
  const Pair pair = {symbol.token, scratch.symbols[symbol.next].token};
  const auto merge = merges_.find(MergeKey(pair));
  if (merge == merges_.end()) return;
  scratch.heap.push_back({merge->second.rank, left, pair, merge->second.token});
  std::push_heap(scratch.heap.begin(), scratch.heap.end(), IsWorse);
}

void BpeMerges::Merge(std::vector<uint32_t>& tokens, Scratch& scratch) const {
  std::vector<Symbol>& symbols = scratch.symbols;
  symbols.clear();
  scratch.heap.clear();
  const uint32_t count = static_cast<uint32_t>(tokens.size());
  for (uint32_t i = 0; i < count; ++i) {
    symbols.push_back({tokens[i], i == 0 ? kNone : i - 1, i + 1 == count ? kNone : i + 1});
  }
  for (uint32_t i = 0; i < count; ++i) PushCandidate(i, scratch);

  while (!scratch.heap.empty()) {
    std::pop_heap(scratch.heap.begin(), scratch.heap.end(), IsWorse);
    const Candidate best = scratch.heap.back();
    scratch.heap.pop_back();
    if (IsStale(best, symbols)) continue;
    Symbol& left = symbols[best.left];
    Symbol& right = symbols[left.next];
    left.token = best.merged;
    left.next = right.next;
    right.token = kGone;
    if (left.next != kNone) symbols[left.next].previous = best.left;
    if (left.previous != kNone) PushCandidate(left.previous, scratch);
    PushCandidate(best.left, scratch);
  }

  tokens.clear();
  for (uint32_t i = 0; i < count; ++i) {
    if (symbols[i].token != kGone) tokens.push_back(symbols[i].token);
  }
}

}  // namespace baton::model
