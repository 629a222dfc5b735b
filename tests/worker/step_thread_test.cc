#include "worker/step_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

namespace baton::worker {
namespace {

TEST(StepThread, TakesTurnsWhileThereIsWork) {
  std::promise<void> enough;
  int turns = 0;
  StepThread thread;
  thread.Start("test-step", [&] {
    if (++turns == 5) enough.set_value();
    return turns < 5 ? absl::ZeroDuration() : absl::InfiniteDuration();
  });
  enough.get_future().wait();
  thread.Stop();
  EXPECT_EQ(turns, 5);
}

TEST(StepThread, AWakeEndsTheSleepAndIsNeverLost) {
  constexpr int kWakes = 1000;
  std::atomic<int> asked = 0, seen = 0;
  std::promise<void> all;
  StepThread thread;
  thread.Start("test-step", [&] {
    const int now = asked.load();
    if (seen.exchange(now) != now && now == kWakes) all.set_value();
    return absl::InfiniteDuration();
  });
  for (int i = 0; i < kWakes; ++i) {
    ++asked;
    thread.Wake();
  }
  all.get_future().wait();
  thread.Stop();
}

TEST(StepThread, SleepsNoLongerThanTheTurnSaid) {
  std::promise<void> second;
  int turns = 0;
  StepThread thread;
  thread.Start("test-step", [&] {
    if (++turns == 2) second.set_value();
    return turns == 1 ? absl::Milliseconds(1) : absl::InfiniteDuration();
  });
  second.get_future().wait();
  thread.Stop();
  EXPECT_EQ(turns, 2);
}

TEST(StepThread, StopsAtOnceWhileAsleep) {
  StepThread thread;
  thread.Start("test-step", [] { return absl::InfiniteDuration(); });
  thread.Stop();
  thread.Stop();
}

}  // namespace
}  // namespace baton::worker
