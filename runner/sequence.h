// A sequence inside the runner: its request, its tokens so far and its block table. Owned by the
// runner; no rules here.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "kvstore/kv_block_pool.h"
#include "model/sampling/sampling.h"
#include "runner/runner.h"
#include "runner/step_planner.h"

namespace baton::runner {

struct Sequence {
  SequenceRequest request;      // request.tokens grows by one token a draw.
  uint64_t arrival = 0;         // Its age: smaller is older.
  std::vector<uint32_t> table;  // Block ids as the model takes them; one reference to each is ours.
  uint32_t reserved = 0;        // Of the pool, promised to this sequence.
  uint32_t computed = 0;        // Tokens whose KV is in the blocks.
  uint32_t told_blocks = 0;     // Blocks the observer has been told of; hand_off only.
  bool decoding = false;
  std::optional<absl::Time> first_chunk_started;
  // Of prompt tokens [0, size); complete when it has output_start entries.
  std::vector<model::PositionLogprobs> prompt_logprobs;

  uint32_t token_count() const { return static_cast<uint32_t>(request.tokens.size()); }
  uint32_t output_count() const { return token_count() - request.output_start; }
  bool wants_prompt_logprobs() const {
    return request.prompt_logprobs.has_value() && prompt_logprobs.size() < request.output_start;
  }

  std::vector<kvstore::KvBlockId> blocks() const {
    std::vector<kvstore::KvBlockId> ids(table.size());
    std::transform(table.begin(), table.end(), ids.begin(),
                   [](uint32_t block) { return kvstore::KvBlockId{block}; });
    return ids;
  }

  PlannerSequence ForPlanner() const {
    return {.tokens = token_count(),
            .computed = computed,
            .blocks = static_cast<uint32_t>(table.size()),
            .reserved = reserved,
            .decoding = decoding,
            .grows = !request.hand_off && output_count() + 1 < request.max_tokens,
            .pinned = told_blocks > 0,
            .all_logits = wants_prompt_logprobs()};
  }
};

}  // namespace baton::runner
