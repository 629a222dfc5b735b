// The distribution a token is drawn from: temperature, min-p, top-k and top-p over one row of logits.
//
// Weights replace the logits in place and are not normalised: only sums of blocks are kept beside them, so a draw looks at one
// block. Nothing is sorted but the few tokens around the cut of top-p.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "model/sampling/logit_blocks.h"
#include "model/sampling/sampling.h"

namespace baton::model {

class TokenDistribution {
 public:
  // Overwrites `logits`; `maxima` as BlockMaxima() gives them. Both must outlive the object.
  // REQUIRES: params.temperature > 0 and at least one logit above -infinity.
  TokenDistribution(absl::Span<float> logits, absl::Span<const float> maxima,
                    const SamplingParams& params);

  // The first token at which the cumulated probability, in the order of ids, exceeds `uniform` in [0, 1).
  uint32_t Draw(double uniform) const;

  double Probability(uint32_t token) const;

 private:
  // The last token that top-p keeps, in the order of falling weight, then of rising id.
  struct Cut {
    float weight;
    uint32_t token;
  };
  Cut FindTopPCut(double top_p) const;
  void DropBelow(const Cut& cut);
  // A weight, as large as is found quickly, below which top-p needs no token.
  double LightestNeeded(double top_p) const;
  // False if no token of the block weighs as much.
  bool MayHold(size_t block, double weight) const;
  double SumOfBlocks() const;

  absl::Span<float> weights_;     // Meaningful only in blocks whose sum is not 0.
  absl::Span<const float> maxima_;  // Of the logits of the blocks.
  std::vector<float> block_sums_;
  WeightRule rule_;
  double total_;                  // > 0.
};

}  // namespace baton::model
