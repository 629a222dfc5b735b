#include "model/sampling/token_distribution.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "model/sampling/top_logits.h"

namespace baton::model {
namespace {

// Mass by weight, on a logarithmic scale read off the bits of a float: 64 bins an octave, 64 octaves below weight 1.
// Lighter weights share the last bin.
constexpr uint32_t kBins = 64 * 64;

uint32_t BinOf(float weight) {
  constexpr uint32_t kOneBits = 0x3f800000;
  constexpr int kBinShift = 23 - 6;
  uint32_t bits;
  std::memcpy(&bits, &weight, sizeof(bits));
  return std::min((kOneBits - bits) >> kBinShift, kBins - 1);
}

struct WeightedToken {
  float weight;
  uint32_t token;
};

bool Heavier(const WeightedToken& a, const WeightedToken& b) {
  return a.weight != b.weight ? a.weight > b.weight : a.token < b.token;
}

}  // namespace

TokenDistribution::TokenDistribution(absl::Span<float> logits, absl::Span<const float> maxima,
                                     const SamplingParams& params)
    : weights_(logits), maxima_(maxima), block_sums_(maxima.size()) {
  rule_ = {.maximum = *std::max_element(maxima.begin(), maxima.end()),
           .temperature = params.temperature,
           .floor = -std::numeric_limits<float>::infinity(),
           .weight_min = params.min_p};
  // min-p and top-k both keep a number of best tokens, so their order does not matter.
  if (params.top_k > 0) rule_.floor = KthLargestLogit(logits, maxima, params.top_k);
  BlockWeights(logits, maxima, rule_, weights_, absl::MakeSpan(block_sums_));
  total_ = SumOfBlocks();
  if (params.top_p < 1.0f) DropBelow(FindTopPCut(params.top_p));
  CHECK(total_ > 0.0);
}

bool TokenDistribution::MayHold(size_t block, double weight) const {
  if (block_sums_[block] == 0.0f) return false;
  // A little generous: weights are rounded.
  const double logit_min = rule_.maximum + rule_.temperature * std::log(0.999 * weight);
  return maxima_[block] >= logit_min - 1e-5 * std::abs(logit_min);
}

double TokenDistribution::LightestNeeded(double top_p) const {
  // All tokens lighter than this together have at most half of 1 - top_p: the cut is well above it.
  const double lightest = 0.5 * (1.0 - top_p) * total_ / static_cast<double>(weights_.size());
  for (double weight = 0x1p-6; weight > lightest; weight *= 0x1p-4) {
    const double mass = MassFrom(weights_, block_sums_, static_cast<float>(weight));
    // The margin is for sums in another order.
    if (mass > (top_p + 1e-5) * total_) return weight;
  }
  return lightest;
}

TokenDistribution::Cut TokenDistribution::FindTopPCut(double top_p) const {
  const double weight_min = LightestNeeded(top_p);
  std::vector<WeightedToken> candidates;
  std::vector<double> mass(kBins, 0.0);
  for (size_t block = 0; block < block_sums_.size(); ++block) {
    if (!MayHold(block, weight_min)) continue;
    const size_t end = std::min(weights_.size(), (block + 1) * kLogitBlock);
    for (size_t token = block * kLogitBlock; token < end; ++token) {
      if (weights_[token] < weight_min) continue;
      candidates.push_back({weights_[token], static_cast<uint32_t>(token)});
      mass[BinOf(weights_[token])] += weights_[token];
    }
  }
  // The bin in which the mass reaches top_p; then token by token inside it.
  const double wanted = top_p * total_;
  double reached = 0.0;
  uint32_t bin = 0;
  while (bin < kBins - 1 && reached + mass[bin] < wanted) reached += mass[bin++];
  const auto end = std::remove_if(candidates.begin(), candidates.end(),
                                  [bin](const WeightedToken& c) { return BinOf(c.weight) != bin; });
  std::sort(candidates.begin(), end, Heavier);
  Cut cut = {.weight = 0.0f, .token = std::numeric_limits<uint32_t>::max()};
  for (auto candidate = candidates.begin(); candidate != end && reached < wanted; ++candidate) {
    cut = {.weight = candidate->weight, .token = candidate->token};
    reached += candidate->weight;
  }
  return cut;
}

void TokenDistribution::DropBelow(const Cut& cut) {
  for (size_t block = 0; block < block_sums_.size(); ++block) {
    float sum = 0.0f;
    if (MayHold(block, cut.weight)) {
      const size_t end = std::min(weights_.size(), (block + 1) * kLogitBlock);
      for (size_t token = block * kLogitBlock; token < end; ++token) {
        float& weight = weights_[token];
        if (weight > cut.weight || (weight == cut.weight && token <= cut.token)) {
          sum += weight;
        } else {
          weight = 0.0f;
        }
      }
    }
    block_sums_[block] = sum;
  }
  total_ = SumOfBlocks();
}

double TokenDistribution::SumOfBlocks() const {
  double sum = 0.0;
  for (const float block : block_sums_) sum += block;
  return sum;
}

uint32_t TokenDistribution::Draw(double uniform) const {
  double left = uniform * total_;
  size_t block = 0;
  size_t last_block = 0;  // The last one met that weighs something.
  for (; block < block_sums_.size(); ++block) {
    if (block_sums_[block] == 0.0f) continue;
    last_block = block;
    if (left < block_sums_[block]) break;
    left -= block_sums_[block];
  }
  // Sums are rounded: when they do not reach `left`, the last token with a weight is drawn.
  const size_t end = std::min(weights_.size(), (last_block + 1) * kLogitBlock);
  size_t drawn = end;
  for (size_t token = last_block * kLogitBlock; token < end; ++token) {
    if (weights_[token] == 0.0f) continue;
    drawn = token;
    if (left < weights_[token]) break;
    left -= weights_[token];
  }
  CHECK_LT(drawn, end);
  return static_cast<uint32_t>(drawn);
}

double TokenDistribution::Probability(uint32_t token) const {
  CHECK_LT(token, weights_.size());
  return block_sums_[token / kLogitBlock] == 0.0f ? 0.0 : weights_[token] / total_;
}

}  // namespace baton::model
