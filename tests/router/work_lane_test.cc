#include "router/work_lane.h"

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "router/text_pool.h"

namespace baton::router {
namespace {

TEST(WorkLane, RunsTasksInOrderAndAllBeforeItStops) {
  std::vector<int> ran;
  WorkLane lane("test");
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(lane.Post([&ran, i] { ran.push_back(i); }));
  lane.Stop();
  ASSERT_EQ(ran.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(ran[i], i);
  EXPECT_FALSE(lane.Post([] { FAIL(); }));
}

TEST(WorkLane, TheAlarmRunsWhenItIsDue) {
  absl::Notification rang;
  WorkLane lane("test", [&rang] { rang.Notify(); });
  const absl::Time due = absl::Now() + absl::Milliseconds(20);
  lane.Post([&lane, due] { lane.SetAlarm(due); });
  rang.WaitForNotification();
  EXPECT_GE(absl::Now(), due);
}

TEST(TextPool, IsBoundedInTasksAndBytes) {
  TextPool pool({.threads = 1, .tasks_max = 3, .bytes_max = 1000});
  absl::Notification go;
  EXPECT_TRUE(pool.Submit(1, [&go] { go.WaitForNotification(); }).ok());
  EXPECT_TRUE(pool.Submit(1, [] {}).ok());
  EXPECT_EQ(pool.Submit(1000, [] {}).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(pool.Submit(1, [] {}).ok());
  EXPECT_EQ(pool.Submit(1, [] {}).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(pool.tasks(), 3);
  go.Notify();
  pool.Stop();
  EXPECT_EQ(pool.tasks(), 0);
  EXPECT_EQ(pool.bytes(), 0);
  EXPECT_EQ(pool.Submit(1, [] {}).code(), absl::StatusCode::kUnavailable);
}

TEST(TextPool, AShortTaskDoesNotWaitBehindALongOne) {
  TextPool pool({.threads = 2});
  absl::Notification go, ran;
  EXPECT_TRUE(pool.Submit(1 << 20, [&go] { go.WaitForNotification(); }).ok());
  EXPECT_TRUE(pool.Submit(10, [&ran] { ran.Notify(); }).ok());
  ran.WaitForNotification();
  go.Notify();
}

}  // namespace
}  // namespace baton::router
