#include "model/sampling/top_logits.h"

#include <algorithm>
#include <cfloat>
#include <limits>

#include "base/check.h"
#include "model/sampling/logit_blocks.h"

namespace baton::model {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

bool Better(const TokenLogit& a, const TokenLogit& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

// At least `count` logits, if there are as many, and among them the `count` best. At least `count` logits are not below
// the count-th largest of the blocks' maxima, so what is below it cannot be among the best.
std::vector<TokenLogit> Candidates(absl::Span<const float> logits, absl::Span<const float> maxima,
                                   size_t count) {
  float bound = -kInfinity;
  if (count <= maxima.size()) {
    std::vector<float> ranked(maxima.begin(), maxima.end());
    std::nth_element(ranked.begin(), ranked.begin() + (count - 1), ranked.end(), std::greater<>());
    bound = ranked[count - 1];
  }
  std::vector<TokenLogit> candidates;
  for (size_t block = 0; block < maxima.size(); ++block) {
    if (maxima[block] < bound) continue;
    const size_t end = std::min(logits.size(), (block + 1) * kLogitBlock);
    for (size_t token = block * kLogitBlock; token < end; ++token) {
      const float logit = std::min(logits[token], FLT_MAX);
      if (logit >= bound) candidates.push_back({static_cast<uint32_t>(token), logit});
    }
  }
  return candidates;
}

}  // namespace

std::vector<TokenLogit> TopLogits(absl::Span<const float> logits, absl::Span<const float> maxima,
                                  size_t count) {
  if (count == 0) return {};
  std::vector<TokenLogit> candidates = Candidates(logits, maxima, count);
  count = std::min(count, candidates.size());
  std::partial_sort(candidates.begin(), candidates.begin() + count, candidates.end(), Better);
  candidates.resize(count);
  return candidates;
}

float KthLargestLogit(absl::Span<const float> logits, absl::Span<const float> maxima, size_t k) {
  CHECK(k >= 1);
  if (k > logits.size()) return -kInfinity;
  std::vector<TokenLogit> candidates = Candidates(logits, maxima, k);
  if (candidates.size() < k) return -kInfinity;
  std::nth_element(candidates.begin(), candidates.begin() + (k - 1), candidates.end(), Better);
  return candidates[k - 1].logit;
}

uint32_t ArgMax(absl::Span<const float> logits, absl::Span<const float> maxima) {
  CHECK(!logits.empty());
  const auto best = std::max_element(maxima.begin(), maxima.end());  // The first of them.
  if (*best == -kInfinity) return 0;
  size_t token = (best - maxima.begin()) * kLogitBlock;
  while (!(logits[token] >= *best)) ++token;
  return static_cast<uint32_t>(token);
}

}  // namespace baton::model
