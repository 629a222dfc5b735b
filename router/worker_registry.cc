#include "router/worker_registry.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace baton::router {
namespace {

// An idle worker reports once a second: this much more than a period is late.
constexpr absl::Duration kReportSlack = absl::Milliseconds(500);
// A step of a worker that has not said how fast it is.
constexpr absl::Duration kStepUnknown = absl::Seconds(10);
// Averages are of ordinary steps; a step over a long context takes longer.
constexpr double kStepMargin = 4;

absl::Duration ExpectedStep(const WorkerHello& hello, const LoadReport& report) {
  if (report.prefill_tokens_per_second <= 0 && !report.decode_step.has_value()) return kStepUnknown;
  absl::Duration step = report.decode_step.value_or(absl::ZeroDuration());
  if (report.prefill_tokens_per_second > 0) {
    step += absl::Seconds(hello.chunk_tokens / report.prefill_tokens_per_second);
  }
  return kStepMargin * step;
}

template <typename T>
T Minus(T a, T b) {
  return a > b ? a - b : 0;
}

}  // namespace

WorkerRegistry::WorkerRegistry(const Options& options, const base::Clock& clock)
    : options_(options), clock_(clock), draws_(options.seed) {}

absl::Status WorkerRegistry::Attach(std::shared_ptr<const Worker> worker) {
  base::MutexLock lock(mutex_);
  if (Find(worker->hello.incarnation) != nullptr) {
    return absl::AlreadyExistsError(
        absl::StrCat("worker ", worker->hello.incarnation.ToHex(), " is attached already"));
  }
  if (entries_.size() >= options_.workers_max) {
    return absl::ResourceExhaustedError(absl::StrCat(
        options_.workers_max, " workers are attached, as many as --attach_workers_max allows"));
  }
  Entry entry;
  entry.compatibility = CompatibilityNumber(worker->hello.compatibility_digest);
  entry.report.blocks_free = worker->hello.blocks_total;
  entry.reported = clock_.Now();
  entry.worker = std::move(worker);
  entries_.push_back(std::move(entry));
  return absl::OkStatus();
}

std::shared_ptr<const Worker> WorkerRegistry::Detach(const base::Id128& incarnation,
                                                     const WorkerConnection& connection) {
  base::MutexLock lock(mutex_);
  Entry* entry = Find(incarnation);
  if (entry == nullptr || entry->worker->connection.get() != &connection) return nullptr;
  std::shared_ptr<const Worker> worker = std::move(entry->worker);
  entries_.erase(entries_.begin() + (entry - entries_.data()));
  return worker;
}

void WorkerRegistry::Report(const base::Id128& incarnation, const LoadReport& report) {
  base::MutexLock lock(mutex_);
  Entry* entry = Find(incarnation);
  if (entry == nullptr) return;
  entry->report = report;
  entry->has_reported = true;
  entry->reported = clock_.Now();
  entry->other_prompt_tokens = Minus<uint64_t>(report.queued_tokens, entry->own_prompt_tokens);
  entry->other_sequences = Minus(report.running_sequences, entry->own_sequences);
  entry->unreported_tokens = 0;
  entry->refused_tokens = ~0ull;
}

void WorkerRegistry::SetDraining(const base::Id128& incarnation) {
  base::MutexLock lock(mutex_);
  if (Entry* entry = Find(incarnation)) entry->state = WorkerState::kDraining;
}

std::vector<std::shared_ptr<const Worker>> WorkerRegistry::FindDead() {
  const absl::Time now = clock_.Now();
  std::vector<std::shared_ptr<const Worker>> dead;
  base::MutexLock lock(mutex_);
  // When this process itself stood still, its workers are not to blame for the silence.
  const absl::Duration own_pause =
      now - looked_ > kReportSlack ? now - looked_ : absl::ZeroDuration();
  looked_ = now;
  for (Entry& entry : entries_) {
    entry.reported = std::min(now, entry.reported + own_pause);
    const absl::Duration silent = SilentFor(entry, now);
    if (silent >= options_.dead_after) dead.push_back(entry.worker);
    if (entry.state == WorkerState::kDraining) continue;
    const bool suspect = silent >= options_.suspect_after + kReportSlack;
    entry.state = suspect ? WorkerState::kSuspect : WorkerState::kReady;
  }
  return dead;
}

absl::StatusOr<WorkerRegistry::Placed> WorkerRegistry::Place(
    const PlacementRequest& request, absl::Span<const base::Id128> exclude) {
  base::MutexLock lock(mutex_);
  std::vector<WorkerLoad> loads;
  std::vector<Entry*> candidates;
  loads.reserve(entries_.size());
  candidates.reserve(entries_.size());
  for (Entry& entry : entries_) {
    const base::Id128& incarnation = entry.worker->hello.incarnation;
    if (entry.state == WorkerState::kDraining) continue;
    if (std::find(exclude.begin(), exclude.end(), incarnation) != exclude.end()) continue;
    loads.push_back(LoadOf(entry));
    candidates.push_back(&entry);
  }
  ASSIGN_OR_RETURN(const Placement placement, router::Place(request, loads, ++draws_));
  Placed placed{.terms = placement};
  if (placement.prefill.has_value()) placed.prefill = candidates[*placement.prefill]->worker;
  if (placement.decode.has_value()) {
    Entry& decode = *candidates[*placement.decode];
    placed.decode = decode.worker;
    decode.own_sequences += 1;
    decode.unreported_tokens += request.prompt_tokens;
  }
  Entry& computes =
      *candidates[placement.prefill.has_value() ? *placement.prefill : *placement.decode];
  computes.own_prompt_tokens += request.prompt_tokens;
  return placed;
}

void WorkerRegistry::EndPrefill(const Worker& worker, uint32_t prompt_tokens) {
  base::MutexLock lock(mutex_);
  Entry* entry = Find(worker);
  if (entry == nullptr) return;
  CHECK(entry->own_prompt_tokens >= prompt_tokens);
  entry->own_prompt_tokens -= prompt_tokens;
}

void WorkerRegistry::EndDecode(const Worker& worker, bool was_admitted) {
  base::MutexLock lock(mutex_);
  Entry* entry = Find(worker);
  if (entry == nullptr) return;
  CHECK(entry->own_sequences > 0);
  entry->own_sequences -= 1;
  if (was_admitted) entry->refused_tokens = ~0ull;
}

void WorkerRegistry::NoteRefusal(const Worker& worker, uint64_t tokens) {
  base::MutexLock lock(mutex_);
  Entry* entry = Find(worker);
  if (entry != nullptr) entry->refused_tokens = std::min(entry->refused_tokens, tokens);
}

uint32_t WorkerRegistry::context_tokens() const {
  base::MutexLock lock(mutex_);
  uint32_t shortest = 0;
  for (const Entry& entry : entries_) {
    const uint32_t context = entry.worker->hello.context_tokens;
    shortest = shortest == 0 ? context : std::min(shortest, context);
  }
  return shortest;
}

std::vector<WorkerSnapshot> WorkerRegistry::List() const {
  base::MutexLock lock(mutex_);
  std::vector<WorkerSnapshot> snapshots;
  snapshots.reserve(entries_.size());
  for (const Entry& entry : entries_) {
    snapshots.push_back(
        {.hello = entry.worker->hello, .state = entry.state, .report = entry.report});
  }
  return snapshots;
}

WorkerRegistry::Entry* WorkerRegistry::Find(const base::Id128& incarnation) {
  for (Entry& entry : entries_) {
    if (entry.worker->hello.incarnation == incarnation) return &entry;
  }
  return nullptr;
}

WorkerRegistry::Entry* WorkerRegistry::Find(const Worker& worker) {
  Entry* entry = Find(worker.hello.incarnation);
  return entry != nullptr && entry->worker.get() == &worker ? entry : nullptr;
}

uint32_t WorkerRegistry::CompatibilityNumber(const std::string& digest) {
  for (const Entry& entry : entries_) {
    if (entry.worker->hello.compatibility_digest == digest) return entry.compatibility;
  }
  return ++compatibilities_;
}

absl::Duration WorkerRegistry::SilentFor(const Entry& entry, absl::Time now) const {
  const absl::Duration since_report = now - entry.reported;
  if (!entry.report.current_step_age.has_value()) return since_report;
  const absl::Duration over_time =
      *entry.report.current_step_age - ExpectedStep(entry.worker->hello, entry.report);
  return std::max(since_report, over_time);
}

WorkerLoad WorkerRegistry::LoadOf(const Entry& entry) {
  const WorkerHello& hello = entry.worker->hello;
  const LoadReport& report = entry.report;
  const uint64_t free = report.blocks_free;
  return {.prefills = hello.role == WorkerRole::kPrefill,
          .decodes = hello.role == WorkerRole::kDecode,
          .local_prefill = hello.local_prefill,
          .accepting = entry.has_reported && entry.state == WorkerState::kReady,
          .compatibility = entry.compatibility,
          .prefill_rate = report.prefill_tokens_per_second,
          .queued_tokens = entry.own_prompt_tokens + entry.other_prompt_tokens,
          .running_sequences = entry.own_sequences + entry.other_sequences,
          .running_sequences_max = hello.running_sequences_max,
          .decode_step_seconds =
              absl::ToDoubleSeconds(report.decode_step.value_or(absl::ZeroDuration())),
          .tokens_free = Minus(free * hello.block_tokens, entry.unreported_tokens),
          .tokens_total = uint64_t{hello.blocks_total} * hello.block_tokens,
          .kv_bytes_per_token = hello.kv_bytes_per_token,
          .owed_bytes = report.owed_bytes,
          .refused_tokens = entry.refused_tokens};
}

}  // namespace baton::router
