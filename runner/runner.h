// One step of the model over a mixed batch: prefill chunks and decode rows of many sequences on
// paged KV.
//
// Both workers and the simulator drive this same object. It has no threads, locks, clock or I/O:
// everything comes in by the inbox and goes out by the outbox of Step(). What a batch holds is
// decided by StepPlanner (step_planner.h), a pure function.
//
//           inbox.add            chunk by chunk              first token
//  (nothing) ────────▶ waiting ──────────────▶ prefilling ──────────────▶ decoding ──▶ finished
//                         ▲                                                │  ▲
//                         └──────── preempted (no block was free) ─────────┘  └── inbox.adopt
//
// A sequence that is handed off stops after its first token; its blocks then belong to the caller.
// Every sequence ends in exactly one of: a TokenOutput with a finish reason, a HandedOver, a
// SequenceFailure, or silently by a cancel. (A hand_off sequence whose first token also finishes it
// has both the TokenOutput and the HandedOver.)
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/kv_layout.h"
#include "kvstore/kv_block_pool.h"
#include "model/model.h"
#include "model/sampling/sampling.h"

namespace baton::runner {

// Names a sequence inside one runner; chosen by the caller, never used twice.
enum class SequenceId : uint64_t {};

enum class FinishReason { kNone, kStop, kLength };

// REQUIRES (CHECKed; the services check what comes from outside): tokens < the vocabulary,
// output_start + max_tokens <= the model's context_tokens.
struct SequenceRequest {
  SequenceId id;
  std::vector<uint32_t> tokens;  // Prompt, and output so far from output_start on.
  uint32_t output_start = 0;     // [1, tokens.size()]
  uint32_t max_tokens = 0;       // Output tokens in all, > tokens.size() - output_start.
  model::SamplingParams sampling;
  std::vector<uint32_t> stop_token_ids;     // Any of these ends the output (kStop); it is reported.
  std::optional<uint32_t> prompt_logprobs;  // Alternatives to report for each prompt token.
  // The KV is for another worker: ranges are told to the StepObserver as they are written, the
  // sequence ends with its first token, and its blocks go to the caller in the outbox.
  bool hand_off = false;
};

// A sequence whose KV for tokens[0, size - 1) is here; its last token is the first output token,
// already drawn and not yet computed. Blocks and the rest of the reservation become the runner's.
struct AdoptedSequence {
  SequenceRequest request;
  std::vector<kvstore::KvBlockId> blocks;
  uint32_t reserved_blocks = 0;
};

struct StepInbox {
  std::vector<SequenceRequest> add;
  std::vector<uint32_t> add_reserved_blocks;  // Per `add` (or empty: none reserved).
  std::vector<AdoptedSequence> adopt;
  std::vector<SequenceId> cancel;  // Unknown ones are ignored.
};

// One new token of one sequence.
struct TokenOutput {
  SequenceId id;
  uint32_t position = 0;  // Output position, from 0.
  model::SampledToken token;
  FinishReason finish = FinishReason::kNone;
  // With the first token, if asked for: one entry per prompt token.
  std::vector<model::PositionLogprobs> prompt_logprobs;
  // With the first token drawn here.
  std::optional<absl::Time> first_chunk_started;
};

// A hand_off sequence that ended (by its first token or by a cancel): the caller now owns one
// reference to each block. A cancelled one holds only the blocks it had begun to fill, none if it
// was still waiting.
struct HandedOver {
  SequenceId id;
  std::vector<kvstore::KvBlockId> blocks;
  bool cancelled = false;
};

struct SequenceFailure {
  SequenceId id;
  absl::Status status;  // RESOURCE_EXHAUSTED: it can never fit the pool.
};

struct StepOutbox {
  std::vector<TokenOutput> tokens;  // In batch order; at most one a sequence.
  std::vector<HandedOver> handed_over;
  std::vector<SequenceFailure> failures;
  uint32_t prefill_tokens = 0;  // Rows of the batch that were prompt (or recomputed) tokens.
  uint32_t decode_rows = 0;
  uint32_t preempted = 0;
  // No batch was run. If counts() still shows sequences, they wait for blocks that others hold:
  // step again when some came back to the pool, or after a few milliseconds.
  bool idle = false;
};

// Told on the stepping thread, while the step runs, layer by layer.
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  // Of a hand_off sequence: blocks [first_block, first_block + blocks.size()) of its table are
  // final in `layer`. Each (layer, block) is told once: a block when it is full, the prompt's last
  // one with the last chunk.
  virtual void OnBlocksWritten(SequenceId id, uint32_t layer, uint32_t first_block,
                               absl::Span<const kvstore::KvBlockId> blocks) = 0;
};

#ifdef BATON_PLANTED_FAULTS
// A defect put into every decode row on purpose, in test builds only: the equality tests must see
// each of them.
enum class PlantedFault {
  kNone,
  kStaleBlock,     // The sequence's first block is read from its last one.
  kWrongPosition,  // The row is computed one position too early.
};
#endif

struct RunnerConfig {
  uint32_t chunk_tokens = 512;  // Prompt tokens of one step, at most. [16, 8192]
  // Sequences that start from waiting while they hold blocks, at most; also decode rows of one
  // step. Adopted sequences bring their blocks and always come in; those beyond the limit wait for
  // their turn. [1, 1024], < the model's batch_rows_max.
  uint32_t running_max = 64;
  uint32_t prefill_packed_max = 16;  // Prompts packed into one chunk, at most. [1, 256]
#ifdef BATON_PLANTED_FAULTS
  PlantedFault planted_fault = PlantedFault::kNone;
#endif
};

absl::Status Validate(const RunnerConfig& config);

struct RunnerCounts {
  uint32_t waiting = 0;        // Sequences that hold no block yet.
  uint32_t running = 0;        // Sequences that do.
  uint32_t queued_tokens = 0;  // Prompt tokens not computed yet, of both.
};

// Thread-compatible.
class Runner {
 public:
  // Borrows all three; they outlive it. `observer` may be null if no sequence is handed off.
  // REQUIRES: Validate(config) is OK, pool.total == kv.block_count.
  Runner(model::Model& model, kvstore::KvBlockPool& pool, const kernels::PagedKvView& kv,
         const RunnerConfig& config, StepObserver* observer);
  // Gives all blocks back.
  ~Runner();

  // Takes the inbox (additions first, then cancels, so a cancel may come with what it cancels),
  // runs one batch if there is any work, draws tokens, gives back the blocks of finished sequences.
  StepOutbox Step(absl::Time now, StepInbox inbox);

  RunnerCounts counts() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::runner
