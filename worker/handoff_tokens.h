// The first token of a hand-off, between the sampler's form and the hand-off's.
#pragma once

#include <cstdint>

#include "kvstore/handoff.h"
#include "model/sampling/sampling.h"

namespace baton::worker {

inline kvstore::FirstToken ToFirstToken(const model::SampledToken& token, uint32_t sample_index) {
  kvstore::FirstToken first{.sample_index = sample_index, .token = token.token};
  if (!token.logprobs.has_value()) return first;
  if (token.logprobs->chosen.has_value()) first.logprob = token.logprobs->chosen->logprob;
  for (const model::TokenLogprob& entry : token.logprobs->top) {
    first.top.emplace_back(entry.token, entry.logprob);
  }
  return first;
}

inline model::SampledToken ToSampledToken(const kvstore::FirstToken& first) {
  model::SampledToken token{.token = first.token};
  if (!first.logprob.has_value()) return token;
  token.logprobs = model::PositionLogprobs{.chosen = model::TokenLogprob{first.token, *first.logprob}};
  for (const auto& [id, logprob] : first.top) token.logprobs->top.push_back({id, logprob});
  return token;
}

}  // namespace baton::worker
