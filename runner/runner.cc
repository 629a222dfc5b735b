#include "runner/runner.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "runner/sequence.h"
#include "runner/step_batch.h"
#include "runner/step_planner.h"

namespace baton::runner {
namespace {

// Logit rows of one step for prompt log-probabilities: 64 rows x 49,152 tokens x 4 bytes = 12.6 MB.
constexpr uint32_t kPromptLogitRowsMax = 64;

// The pool is shared: between the look at its counts and the allocation another thread may reserve.
// After so many plans that found too little, a plan is made that takes no free block.
constexpr int kPlanAttemptsMax = 4;

absl::Status OutOfRange(absl::string_view field, uint32_t value, uint32_t low, uint32_t high) {
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", value, ", legal: [", low, ", ", high, "]"));
}

absl::Status ValidateRange(absl::string_view field, uint32_t value, uint32_t low, uint32_t high) {
  return low <= value && value <= high ? absl::OkStatus() : OutOfRange(field, value, low, high);
}

}  // namespace

absl::Status Validate(const RunnerConfig& config) {
  RETURN_IF_ERROR(ValidateRange("chunk_tokens", config.chunk_tokens, 16, 8192));
  RETURN_IF_ERROR(ValidateRange("running_max", config.running_max, 1, 1024));
  return ValidateRange("prefill_packed_max", config.prefill_packed_max, 1, 256);
}

class Runner::Impl {
 public:
  Impl(model::Model& model, kvstore::KvBlockPool& pool, const kernels::PagedKvView& kv,
       const RunnerConfig& config, StepObserver* observer)
      : pool_(pool),
        info_(model.info()),
        limits_{.block_tokens = kv.layout.block_tokens,
                .chunk_tokens = config.chunk_tokens,
                .rows_max = model.batch_rows_max(),
                .running_max = config.running_max,
                .prefill_packed_max = config.prefill_packed_max,
                .logit_rows_max = kPromptLogitRowsMax},
        blocks_total_(pool.counts().total),
        has_observer_(observer != nullptr),
        batch_(model, kv, config, observer) {
    CHECK_OK(Validate(config));
    CHECK_LT(config.running_max, model.batch_rows_max());
    CHECK_EQ(blocks_total_, kv.block_count);
  }

  ~Impl() {
    for (auto& [id, sequence] : sequences_) GiveBack(*sequence);
  }

  StepOutbox Step(absl::Time now, StepInbox inbox) {
    StepOutbox outbox;
    TakeIn(std::move(inbox), outbox);
    PlanAndAllocate(outbox);
    if (entries_.empty()) {
      outbox.idle = true;
      return outbox;
    }
    StartClocks(now);
    batch_.Run(absl::MakeSpan(entries_));
    TakeResults(outbox);
    return outbox;
  }

  RunnerCounts counts() const {
    RunnerCounts counts{.waiting = static_cast<uint32_t>(waiting_.size()),
                        .running = static_cast<uint32_t>(running_.size())};
    for (const std::vector<Sequence*>* list : {&waiting_, &running_}) {
      for (const Sequence* sequence : *list) {
        if (!sequence->decoding) {
          counts.queued_tokens += sequence->token_count() - sequence->computed;
        }
      }
    }
    return counts;
  }

 private:
  // Intake.

  void TakeIn(StepInbox inbox, StepOutbox& outbox) {
    CHECK(inbox.add_reserved_blocks.empty() ||
          inbox.add_reserved_blocks.size() == inbox.add.size());
    for (size_t i = 0; i < inbox.add.size(); ++i) {
      const uint32_t reserved =
          inbox.add_reserved_blocks.empty() ? 0 : inbox.add_reserved_blocks[i];
      Add(std::move(inbox.add[i]), reserved, outbox);
    }
    for (AdoptedSequence& adopted : inbox.adopt) Adopt(std::move(adopted), outbox);
    for (SequenceId id : inbox.cancel) Cancel(id, outbox);
  }

  void Add(SequenceRequest request, uint32_t reserved, StepOutbox& outbox) {
    CHECK(!request.hand_off || has_observer_);
    Sequence& sequence = Insert(std::move(request));
    sequence.reserved = reserved;
    // The first prompt token has no row before it that could tell of it.
    if (sequence.request.prompt_logprobs.has_value()) sequence.prompt_logprobs.emplace_back();
    InsertByAge(waiting_, sequence);
    FailIfTooLong(sequence, outbox);
  }

  void Adopt(AdoptedSequence adopted, StepOutbox& outbox) {
    CHECK(!adopted.request.hand_off);
    CHECK_LT(adopted.request.output_start, adopted.request.tokens.size());
    adopted.request.prompt_logprobs.reset();  // Told where the prompt was computed.
    Sequence& sequence = Insert(std::move(adopted.request));
    sequence.computed = sequence.token_count() - 1;
    sequence.decoding = true;
    sequence.reserved = adopted.reserved_blocks;
    CHECK_LE(BlocksFor(sequence.computed, limits_.block_tokens), adopted.blocks.size());
    AppendBlocks(adopted.blocks, sequence);
    InsertByAge(running_, sequence);
    FailIfTooLong(sequence, outbox);
  }

  Sequence& Insert(SequenceRequest request) {
    CHECK(request.output_start >= 1);
    CHECK_LE(request.output_start, request.tokens.size());
    CHECK_LT(request.tokens.size() - request.output_start, request.max_tokens);
    CHECK_LE(uint64_t{request.output_start} + request.max_tokens, info_.context_tokens);
    for (uint32_t token : request.tokens) CHECK_LT(token, info_.vocabulary_size);
    auto [place, inserted] = sequences_.try_emplace(request.id, std::make_unique<Sequence>());
    CHECK(inserted) << "sequence id " << static_cast<uint64_t>(request.id) << " used twice";
    Sequence& sequence = *place->second;
    sequence.request = std::move(request);
    sequence.arrival = next_arrival_++;
    return sequence;
  }

  void Cancel(SequenceId id, StepOutbox& outbox) {
    const auto found = sequences_.find(id);
    if (found == sequences_.end()) return;
    if (found->second->request.hand_off) {
      HandOver(*found->second, /*cancelled=*/true, outbox);
    } else {
      End(*found->second);
    }
  }

  // Planning, and the blocks that go with it.

  void PlanAndAllocate(StepOutbox& outbox) {
    for (int attempt = 0;; ++attempt) {
      const kvstore::KvPoolCounts counts = pool_.counts();
      const StepPlan plan =
          MakePlan(attempt < kPlanAttemptsMax ? counts.free - counts.reserved : 0);
      SetEntries(plan);
      Sequence* const head = plan.reserve ? waiting_[plan.reserve->index] : nullptr;
      for (const PlannedReservation& revoked : plan.revoke) {
        Unreserve(*waiting_[revoked.index], revoked.blocks);
      }
      Preempt(plan.preempt, outbox);
      // Each round that preempts leaves fewer running, and one that does not and takes no free
      // block cannot fail.
      if (!AllocateForEntries()) continue;
      if (head != nullptr && pool_.Reserve(plan.reserve->blocks).ok()) {
        head->reserved += plan.reserve->blocks;
      }
      MoveStarted();
      return;
    }
  }

  StepPlan MakePlan(uint32_t blocks_free) {
    planner_running_.clear();
    for (const Sequence* sequence : running_) planner_running_.push_back(sequence->ForPlanner());
    planner_waiting_.clear();
    for (const Sequence* sequence : waiting_) planner_waiting_.push_back(sequence->ForPlanner());
    return PlanStep(
        {.running = planner_running_, .waiting = planner_waiting_, .blocks_free = blocks_free},
        limits_);
  }

  void SetEntries(const StepPlan& plan) {
    entries_.clear();
    const auto add = [this](const std::vector<Sequence*>& list,
                            const std::vector<PlannedRows>& rows, bool decode) {
      for (const PlannedRows& planned : rows) {
        entries_.push_back({.sequence = list[planned.index],
                            .tokens = planned.tokens,
                            .new_blocks = planned.new_blocks,
                            .decode = decode});
      }
    };
    add(running_, plan.decode, true);
    add(running_, plan.resume, false);
    add(waiting_, plan.start, false);
  }

  // Back to the waiting line, to be computed again with what it has put out so far.
  void Preempt(absl::Span<const uint32_t> youngest_first, StepOutbox& outbox) {
    for (uint32_t index : youngest_first) {
      Sequence& sequence = *running_[index];
      running_.erase(running_.begin() + index);
      GiveBack(sequence);
      sequence.computed = 0;
      sequence.decoding = false;
      InsertByAge(waiting_, sequence);
      ++outbox.preempted;
    }
  }

  // All new blocks of the entries, or none. False: another thread took the free ones meanwhile.
  bool AllocateForEntries() {
    size_t from_free = 0;
    size_t from_reserved = 0;
    for (const BatchEntry& entry : entries_) {
      const uint32_t reserved = std::min(entry.new_blocks, entry.sequence->reserved);
      from_reserved += reserved;
      from_free += entry.new_blocks - reserved;
    }
    new_blocks_.resize(from_free + from_reserved);
    const auto blocks = absl::MakeSpan(new_blocks_);
    if (from_free > 0 && !pool_.Allocate(blocks.first(from_free)).ok()) return false;
    if (from_reserved > 0) pool_.AllocateReserved(blocks.last(from_reserved));
    absl::Span<const kvstore::KvBlockId> rest = blocks;
    for (BatchEntry& entry : entries_) {
      Sequence& sequence = *entry.sequence;
      sequence.reserved -= std::min(entry.new_blocks, sequence.reserved);
      AppendBlocks(rest.first(entry.new_blocks), sequence);
      rest.remove_prefix(entry.new_blocks);
    }
    return true;
  }

  void MoveStarted() {
    for (const BatchEntry& entry : entries_) {
      if (entry.decode || entry.sequence->computed > 0) continue;
      std::erase(waiting_, entry.sequence);
      InsertByAge(running_, *entry.sequence);
    }
  }

  // Results.

  void StartClocks(absl::Time now) {
    for (const BatchEntry& entry : entries_) {
      std::optional<absl::Time>& started = entry.sequence->first_chunk_started;
      if (!entry.decode && !started.has_value()) started = now;
    }
  }

  void TakeResults(StepOutbox& outbox) {
    outbox.tokens.reserve(entries_.size());
    absl::Span<float> logits = batch_.logits();
    for (const BatchEntry& entry : entries_) {
      (entry.decode ? outbox.decode_rows : outbox.prefill_tokens) += entry.tokens;
      const size_t logit_count = size_t{entry.logit_rows} * info_.vocabulary_size;
      TakeRows(entry, logits.first(logit_count), outbox);
      logits.remove_prefix(logit_count);
    }
  }

  // `logits` [entry.logit_rows, vocabulary_size]
  void TakeRows(const BatchEntry& entry, absl::Span<float> logits, StepOutbox& outbox) {
    Sequence& sequence = *entry.sequence;
    const bool draws = entry.draws();
    if (sequence.wants_prompt_logprobs()) TakePromptLogprobs(entry, logits);
    sequence.computed += entry.tokens;
    if (!draws) return;
    Draw(sequence, logits.last(info_.vocabulary_size), outbox);
  }

  void TakePromptLogprobs(const BatchEntry& entry, absl::Span<const float> logits) {
    Sequence& sequence = *entry.sequence;
    for (uint32_t row = entry.end() - entry.logit_rows; row < entry.end(); ++row) {
      const uint32_t told = row + 1;
      if (told >= sequence.request.output_start) return;
      CHECK_EQ(told, sequence.prompt_logprobs.size());
      sequence.prompt_logprobs.push_back(model::LogprobsOf(logits.first(info_.vocabulary_size),
                                                           sequence.request.tokens[told],
                                                           *sequence.request.prompt_logprobs));
      logits.remove_prefix(info_.vocabulary_size);
    }
  }

  void Draw(Sequence& sequence, absl::Span<float> logits, StepOutbox& outbox) {
    SequenceRequest& request = sequence.request;
    TokenOutput output{.id = request.id, .position = sequence.output_count()};
    output.token = model::Sample(logits, request.sampling,
                                 {.tokens = request.tokens, .output_start = request.output_start});
    request.tokens.push_back(output.token.token);
    output.prompt_logprobs = std::move(sequence.prompt_logprobs);
    output.first_chunk_started = std::exchange(sequence.first_chunk_started, std::nullopt);
    request.prompt_logprobs.reset();
    output.finish = FinishOf(sequence);
    const bool finished = output.finish != FinishReason::kNone;
    sequence.decoding = true;
    outbox.tokens.push_back(std::move(output));

    if (request.hand_off) {
      HandOver(sequence, /*cancelled=*/false, outbox);
    } else if (finished) {
      End(sequence);
    } else {
      FailIfTooLong(sequence, outbox);
    }
  }

  static FinishReason FinishOf(const Sequence& sequence) {
    const SequenceRequest& request = sequence.request;
    const auto& stops = request.stop_token_ids;
    if (std::find(stops.begin(), stops.end(), request.tokens.back()) != stops.end()) {
      return FinishReason::kStop;
    }
    return sequence.output_count() == request.max_tokens ? FinishReason::kLength
                                                         : FinishReason::kNone;
  }

  // Ends. Each destroys the sequence.

  // The pool as a whole is too small for the tokens so far, whoever else gives way.
  void FailIfTooLong(Sequence& sequence, StepOutbox& outbox) {
    const uint32_t blocks = BlocksFor(sequence.token_count(), limits_.block_tokens);
    if (blocks <= blocks_total_) return;
    outbox.failures.push_back(
        {.id = sequence.request.id,
         .status = absl::ResourceExhaustedError(absl::StrCat(
             "the sequence's ", sequence.token_count(), " tokens need ", blocks, " KV blocks of ",
             limits_.block_tokens, " tokens, and this worker has ", blocks_total_))});
    End(sequence);
  }

  void HandOver(Sequence& sequence, bool cancelled, StepOutbox& outbox) {
    outbox.handed_over.push_back(
        {.id = sequence.request.id, .blocks = sequence.blocks(), .cancelled = cancelled});
    sequence.table.clear();
    End(sequence);
  }

  void End(Sequence& sequence) {
    GiveBack(sequence);
    std::erase(waiting_, &sequence);
    std::erase(running_, &sequence);
    const SequenceId id = sequence.request.id;
    sequences_.erase(id);
  }

  // Its blocks and what is promised to it.
  void GiveBack(Sequence& sequence) {
    pool_.Release(sequence.blocks());
    sequence.table.clear();
    Unreserve(sequence, sequence.reserved);
  }

  void Unreserve(Sequence& sequence, uint32_t blocks) {
    if (blocks == 0) return;
    pool_.Unreserve(blocks);
    sequence.reserved -= blocks;
  }

  static void AppendBlocks(absl::Span<const kvstore::KvBlockId> blocks, Sequence& sequence) {
    for (kvstore::KvBlockId block : blocks) {
      sequence.table.push_back(static_cast<uint32_t>(block));
    }
  }

  static void InsertByAge(std::vector<Sequence*>& list, Sequence& sequence) {
    const auto younger = std::upper_bound(
        list.begin(), list.end(), &sequence,
        [](const Sequence* a, const Sequence* b) { return a->arrival < b->arrival; });
    list.insert(younger, &sequence);
  }

  kvstore::KvBlockPool& pool_;
  const model::ModelInfo& info_;
  const PlannerLimits limits_;
  const uint32_t blocks_total_;
  const bool has_observer_;
  StepBatch batch_;

  absl::flat_hash_map<SequenceId, std::unique_ptr<Sequence>> sequences_;
  std::vector<Sequence*> waiting_;  // Hold no block; oldest first.
  std::vector<Sequence*> running_;  // Hold blocks; oldest first.
  uint64_t next_arrival_ = 0;

  // Of the step at hand; kept for their memory.
  std::vector<BatchEntry> entries_;
  std::vector<PlannerSequence> planner_running_;
  std::vector<PlannerSequence> planner_waiting_;
  std::vector<kvstore::KvBlockId> new_blocks_;
};

Runner::Runner(model::Model& model, kvstore::KvBlockPool& pool, const kernels::PagedKvView& kv,
               const RunnerConfig& config, StepObserver* observer)
    : impl_(std::make_unique<Impl>(model, pool, kv, config, observer)) {}

Runner::~Runner() = default;

StepOutbox Runner::Step(absl::Time now, StepInbox inbox) {
  return impl_->Step(now, std::move(inbox));
}

RunnerCounts Runner::counts() const { return impl_->counts(); }

}  // namespace baton::runner
