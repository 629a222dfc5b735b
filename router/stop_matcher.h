// Finds stop strings in text that arrives in pieces, and holds back no more than it must.
//
// What is held is always the longest suffix of the text so far that is a proper prefix of some stop
// string. A match is the stop string that is complete first; of several that end together, the
// longest. So the result does not depend on how the text was cut. Thread-compatible, one per
// answer; time is O(bytes × stop strings).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace baton::router {

class StopMatcher {
 public:
  // REQUIRES: no stop string is empty.
  explicit StopMatcher(const std::vector<std::string>& stops);

  // Appends to `out` what may be sent now. True when a stop string is complete: `out` has all the
  // text before it, and nothing may be appended any more.
  bool Append(absl::string_view text, std::string& out);

  // At the end of an answer that met no stop string: what was held may be sent.
  void Flush(std::string& out);

  size_t held_bytes() const { return held_.size(); }

 private:
  // One stop string and how much of it stands at the end of the text (Knuth, Morris, Pratt).
  struct Pattern {
    std::string text;
    std::vector<uint16_t>
        fallback;  // [i]: longest proper prefix of text that ends text[0, i]; size: text.size().
    uint16_t matched = 0;

    void Advance(char byte);
  };

  std::vector<Pattern> patterns_;
  std::string held_;
};

}  // namespace baton::router
