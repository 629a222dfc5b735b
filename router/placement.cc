#include "router/placement.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace baton::router {
namespace {

constexpr size_t kCandidatesMax = 4;
constexpr double kPrefillRateUnknown = 1000;  // Tokens a second, until a worker has said.
constexpr double kLinkBytesPerSecond =
    1e9;  // Measured: 1 to 1.5 GB/s over gRPC, more over shared memory.
constexpr double kDecodeStepUnknown = 0.02;  // Seconds.
constexpr double kTpotWeight = 1;         // Seconds of waiting that a full batch is worth, a step.
constexpr double kPreemptionSeconds = 1;  // What running out of KV costs.
constexpr uint32_t kGrowthTokens = 256;   // Output that is expected before another sequence ends.
constexpr double kTie = 1e-3;             // Relative.

struct Candidate {
  uint32_t index;
  double cost;
  uint64_t lot = 0;  // Orders equal costs.
};

// splitmix64: the i-th number of the sequence that starts at `draw`.
uint64_t Lot(uint64_t draw, uint64_t i) {
  uint64_t z = draw + (i + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

double PrefillRate(const WorkerLoad& worker) {
  return worker.prefill_rate > 0 ? worker.prefill_rate : kPrefillRateUnknown;
}

double PrefillSeconds(const PlacementRequest& request, const WorkerLoad& worker) {
  return static_cast<double>(worker.queued_tokens + request.prompt_tokens) / PrefillRate(worker);
}

// What the link adds after the prompt is computed: layers travel while the next ones compute.
double LinkSeconds(const PlacementRequest& request, const WorkerLoad& prefill) {
  const double bytes = static_cast<double>(prefill.owed_bytes) +
                       static_cast<double>(request.prompt_tokens * prefill.kv_bytes_per_token);
  const double overlap = request.prompt_tokens / PrefillRate(prefill);
  return std::max(0.0, bytes / kLinkBytesPerSecond - overlap);
}

// One more row makes each step of all the others a little longer; a fuller batch weighs more.
double TpotSeconds(const WorkerLoad& decode) {
  const double step =
      decode.decode_step_seconds > 0 ? decode.decode_step_seconds : kDecodeStepUnknown;
  const double fullness = static_cast<double>(decode.running_sequences + 1) /
                          std::max(1u, decode.running_sequences_max);
  return kTpotWeight * step * fullness;
}

double MemorySeconds(const PlacementRequest& request, const WorkerLoad& decode) {
  const double needed = request.prompt_tokens + std::min(request.max_tokens, kGrowthTokens);
  const double missing = needed - static_cast<double>(decode.tokens_free);
  if (missing <= 0) return 0;
  return kPreemptionSeconds * missing / needed;
}

bool HasRoom(const PlacementRequest& request, const WorkerLoad& worker) {
  const uint64_t tokens = uint64_t{request.prompt_tokens} + request.max_tokens;
  if (!worker.accepting || tokens >= worker.refused_tokens) return false;
  return !worker.decodes || worker.running_sequences < worker.running_sequences_max;
}

bool CouldEverHold(const PlacementRequest& request, const WorkerLoad& worker) {
  return request.prompt_tokens < worker.tokens_total;
}

// Cheapest first.
void Sort(std::vector<Candidate>& candidates, uint64_t draw) {
  for (Candidate& candidate : candidates) candidate.lot = Lot(draw, candidate.index);
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return a.cost != b.cost ? a.cost < b.cost : a.lot < b.lot;
  });
}

// The cheaper of two placements; equal ones share by a fair draw (reservoir of size one).
class BestPlacement {
 public:
  explicit BestPlacement(uint64_t draw) : draw_(draw) {}

  void Offer(const Placement& placement) {
    if (!best_.has_value() || placement.cost_seconds() < best_->cost_seconds() * (1 - kTie)) {
      best_ = placement;
      ties_ = 1;
      return;
    }
    if (placement.cost_seconds() > best_->cost_seconds() * (1 + kTie)) return;
    ++ties_;
    if (Lot(draw_, ~ties_) % ties_ == 0) best_ = placement;
  }

  const std::optional<Placement>& best() const { return best_; }

 private:
  uint64_t draw_;
  uint64_t ties_ = 0;
  std::optional<Placement> best_;
};

// Workers that could serve the request if they were idle and well, and why none can now.
struct Eligibility {
  bool any = false;        // Some worker, or pair, is of the right kind.
  bool any_holds = false;  // ... and its KV is large enough.
};

Eligibility CheckPrefillOnly(const PlacementRequest& request,
                             absl::Span<const WorkerLoad> workers) {
  Eligibility eligibility;
  for (const WorkerLoad& worker : workers) {
    if (!worker.prefills && !worker.local_prefill) continue;
    eligibility.any = true;
    eligibility.any_holds |= CouldEverHold(request, worker);
  }
  return eligibility;
}

bool HasPartner(const WorkerLoad& decode, absl::Span<const WorkerLoad> workers) {
  if (decode.local_prefill) return true;
  return std::any_of(workers.begin(), workers.end(), [&](const WorkerLoad& worker) {
    return worker.prefills && worker.compatibility == decode.compatibility;
  });
}

Eligibility CheckPairs(const PlacementRequest& request, absl::Span<const WorkerLoad> workers) {
  Eligibility eligibility;
  for (const WorkerLoad& worker : workers) {
    if (!worker.decodes || !HasPartner(worker, workers)) continue;
    eligibility.any = true;
    eligibility.any_holds |= CouldEverHold(request, worker);
  }
  return eligibility;
}

absl::Status WhyNone(const PlacementRequest& request, absl::Span<const WorkerLoad> workers) {
  const Eligibility eligibility =
      request.max_tokens == 1 ? CheckPrefillOnly(request, workers) : CheckPairs(request, workers);
  if (!eligibility.any) {
    return absl::UnavailableError(
        request.max_tokens == 1 ? "no prefill worker is attached"
                                : "no decode worker with a matching prefill worker is attached");
  }
  if (!eligibility.any_holds) {
    return absl::OutOfRangeError(absl::StrCat("the prompt has ", request.prompt_tokens,
                                              " tokens, more than any worker's KV pool holds"));
  }
  return absl::ResourceExhaustedError("all workers are busy");
}

std::vector<Candidate> PrefillCandidates(const PlacementRequest& request,
                                         absl::Span<const WorkerLoad> workers) {
  std::vector<Candidate> candidates;
  for (uint32_t i = 0; i < workers.size(); ++i) {
    const WorkerLoad& worker = workers[i];
    if (!worker.prefills || !HasRoom(request, worker) || !CouldEverHold(request, worker)) continue;
    candidates.push_back({i, PrefillSeconds(request, worker) + LinkSeconds(request, worker)});
  }
  return candidates;
}

std::vector<Candidate> DecodeCandidates(const PlacementRequest& request,
                                        absl::Span<const WorkerLoad> workers) {
  std::vector<Candidate> candidates;
  for (uint32_t i = 0; i < workers.size(); ++i) {
    const WorkerLoad& worker = workers[i];
    if (!worker.decodes || !HasRoom(request, worker) || !CouldEverHold(request, worker)) continue;
    candidates.push_back({i, TpotSeconds(worker) + MemorySeconds(request, worker)});
  }
  return candidates;
}

void OfferLocal(const PlacementRequest& request, absl::Span<const WorkerLoad> workers,
                const std::vector<Candidate>& decodes, BestPlacement& best) {
  for (const Candidate& decode : decodes) {
    const WorkerLoad& worker = workers[decode.index];
    if (!worker.local_prefill) continue;
    best.Offer({.decode = decode.index,
                .ttft_seconds = PrefillSeconds(request, worker),
                .tpot_seconds = TpotSeconds(worker),
                .memory_seconds = MemorySeconds(request, worker)});
  }
}

// `decodes` and `prefills` are sorted.
void OfferPairs(const PlacementRequest& request, absl::Span<const WorkerLoad> workers,
                const std::vector<Candidate>& decodes, const std::vector<Candidate>& prefills,
                BestPlacement& best) {
  size_t decodes_tried = 0;
  for (const Candidate& decode : decodes) {
    const WorkerLoad& worker = workers[decode.index];
    size_t prefills_tried = 0;
    for (const Candidate& prefill : prefills) {
      if (workers[prefill.index].compatibility != worker.compatibility) continue;
      best.Offer({.prefill = prefill.index,
                  .decode = decode.index,
                  .ttft_seconds = prefill.cost,
                  .tpot_seconds = TpotSeconds(worker),
                  .memory_seconds = MemorySeconds(request, worker)});
      if (++prefills_tried == kCandidatesMax) break;
    }
    // A decode worker without a partner does not take the place of one that has one.
    if (prefills_tried > 0 && ++decodes_tried == kCandidatesMax) break;
  }
}

}  // namespace

absl::StatusOr<Placement> Place(const PlacementRequest& request,
                                absl::Span<const WorkerLoad> workers, uint64_t draw) {
  std::vector<Candidate> prefills = PrefillCandidates(request, workers);
  std::vector<Candidate> decodes = DecodeCandidates(request, workers);
  Sort(prefills, draw);
  Sort(decodes, draw);
  BestPlacement best(draw);
  if (request.max_tokens == 1) {
    for (const Candidate& prefill : prefills) {
      best.Offer({.prefill = prefill.index,
                  .ttft_seconds = PrefillSeconds(request, workers[prefill.index])});
    }
  } else {
    OfferPairs(request, workers, decodes, prefills, best);
  }
  // A decode worker computes prompts itself only where no prefill worker is to be had: each prompt
  // there halts all of its streams.
  if (!best.best().has_value()) OfferLocal(request, workers, decodes, best);
  if (!best.best().has_value()) return WhyNone(request, workers);
  return *best.best();
}

}  // namespace baton::router
