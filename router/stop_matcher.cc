#include "router/stop_matcher.h"

#include <algorithm>

#include "base/check.h"

namespace baton::router {
namespace {

std::vector<uint16_t> FallbackTable(const std::string& text) {
  std::vector<uint16_t> fallback(text.size(), 0);
  uint16_t length = 0;
  for (size_t i = 1; i < text.size(); ++i) {
    while (length > 0 && text[i] != text[length]) length = fallback[length - 1];
    if (text[i] == text[length]) ++length;
    fallback[i] = length;
  }
  return fallback;
}

}  // namespace

void StopMatcher::Pattern::Advance(char byte) {
  while (matched > 0 && text[matched] != byte) matched = fallback[matched - 1];
  if (text[matched] == byte) ++matched;
}

StopMatcher::StopMatcher(const std::vector<std::string>& stops) {
  patterns_.reserve(stops.size());
  for (const std::string& stop : stops) {
    CHECK(!stop.empty() && stop.size() <= UINT16_MAX);
    patterns_.push_back({.text = stop, .fallback = FallbackTable(stop)});
  }
}

bool StopMatcher::Append(absl::string_view text, std::string& out) {
  if (patterns_.empty()) {
    out.append(text.data(), text.size());
    return false;
  }
  for (const char byte : text) {
    held_.push_back(byte);
    size_t complete = 0;
    for (Pattern& pattern : patterns_) {
      pattern.Advance(byte);
      if (pattern.matched == pattern.text.size())
        complete = std::max(complete, pattern.text.size());
    }
    if (complete > 0) {
      out.append(held_, 0, held_.size() - complete);
      held_.clear();
      return true;
    }
  }
  size_t keep = 0;
  for (const Pattern& pattern : patterns_) keep = std::max<size_t>(keep, pattern.matched);
  out.append(held_, 0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return false;
}

void StopMatcher::Flush(std::string& out) {
  out += held_;
  held_.clear();
}

}  // namespace baton::router
