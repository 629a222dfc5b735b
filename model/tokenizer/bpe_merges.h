// The merges of a byte-pair encoding: joins the best-ranked neighbours of a pre-token until none is
// left.
//
// Immutable after the last Add(): any thread may merge. n symbols take O(n log n), whatever the
// text.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace baton::model {

class BpeMerges {
 public:
  struct Pair {
    uint32_t left, right;
  };

  void Reserve(size_t count) { merges_.reserve(count); }
  // Merges are added best first. False when the pair has one already; it keeps its first.
  bool Add(Pair pair, uint32_t merged);

  // Working memory of Merge(), kept by the caller so that a text of many words allocates once.
  struct Scratch {
    struct Symbol {
      uint32_t token;
      uint32_t previous, next;  // Indices, kNone at the ends.
    };
    struct Candidate {
      uint32_t rank;
      uint32_t left;  // Index of the left symbol.
      Pair pair;      // The tokens as they were; the candidate is stale when they are no longer.
      uint32_t merged;
    };
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;  // Best (lowest rank, then leftmost) in front.
  };

  // Replaces `tokens`, one a byte, by what they merge to.
  void Merge(std::vector<uint32_t>& tokens, Scratch& scratch) const;

 private:
  struct Merged {
    uint32_t rank, token;
  };
  void PushCandidate(uint32_t left, Scratch& scratch) const;

  absl::flat_hash_map<uint64_t, Merged> merges_;  // Key: left << 32 | right.
};

}  // namespace baton::model
