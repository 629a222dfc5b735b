// absl::Time that never jumps: the wall clock at the start, moved on by the monotonic clock. Deadlines of hand-offs must not
// fire because somebody set the clock.
#pragma once

#include <chrono>

#include "absl/time/clock.h"
#include "base/clock.h"

namespace baton::kvstore {

class SteadyClock final : public base::Clock {
 public:
  absl::Time Now() const override {
    return wall_at_start_ + absl::FromChrono(std::chrono::steady_clock::now() - steady_at_start_);
  }

 private:
  const absl::Time wall_at_start_ = absl::Now();
  const std::chrono::steady_clock::time_point steady_at_start_ = std::chrono::steady_clock::now();
};

}  // namespace baton::kvstore
