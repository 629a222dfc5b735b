#include "worker/attempt_table.h"

#include <gtest/gtest.h>

namespace baton::worker {
namespace {

constexpr base::Id128 kRouter{1, 1};
constexpr base::Id128 kOther{2, 2};

AttemptKey Key(uint64_t request, uint32_t attempt) { return {{7, request}, attempt}; }

TEST(AttemptTable, AnAttemptBeginsOnce) {
  AttemptTable table;
  EXPECT_TRUE(table.Begin(Key(1, 1), kRouter).ok());
  EXPECT_EQ(table.Begin(Key(1, 1), kRouter).code(), absl::StatusCode::kAlreadyExists);
  table.End(Key(1, 1));
  EXPECT_EQ(table.Begin(Key(1, 1), kRouter).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(table.active(), 0u);
}

TEST(AttemptTable, ALaterAttemptMayFollowAndAnEarlierMayNot) {
  AttemptTable table;
  EXPECT_TRUE(table.Begin(Key(1, 2), kRouter).ok());
  table.End(Key(1, 2));
  EXPECT_EQ(table.Begin(Key(1, 1), kRouter).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(table.Begin(Key(1, 3), kRouter).ok());
}

TEST(AttemptTable, ACancelThatOvertookItsRequestStopsIt) {
  AttemptTable table;
  EXPECT_FALSE(table.Cancel(Key(1, 1), kRouter));
  EXPECT_EQ(table.Begin(Key(1, 1), kRouter).code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(table.Begin(Key(1, 2), kRouter).ok()) << "another attempt is another matter";
}

TEST(AttemptTable, ACancelCountsOnceAndOnlyFromItsRouter) {
  AttemptTable table;
  ASSERT_TRUE(table.Begin(Key(1, 1), kRouter).ok());
  EXPECT_FALSE(table.Cancel(Key(1, 1), kOther));
  EXPECT_TRUE(table.Cancel(Key(1, 1), kRouter));
  EXPECT_FALSE(table.Cancel(Key(1, 1), kRouter));
}

TEST(AttemptTable, RemembersNoMoreThanItsBound) {
  AttemptTable table;
  for (uint64_t i = 0; i < 3 * AttemptTable::kRememberedMax; ++i) {
    ASSERT_TRUE(table.Begin(Key(i, 1), kRouter).ok());
    table.End(Key(i, 1));
    table.Cancel(Key(i, 1), kRouter);
    ASSERT_LE(table.remembered(), AttemptTable::kRememberedMax);
  }
  EXPECT_TRUE(table.Begin(Key(0, 1), kRouter).ok()) << "the oldest is forgotten";
}

TEST(AttemptTable, ARequestWithManyAttemptsTakesItsPlacesInTurn) {
  AttemptTable table;
  for (uint32_t attempt = 1; attempt <= 2 * AttemptTable::kRememberedMax; ++attempt) {
    ASSERT_TRUE(table.Begin(Key(1, attempt), kRouter).ok());
    table.End(Key(1, attempt));
  }
  EXPECT_EQ(table.remembered(), 1u);
  EXPECT_EQ(table.Begin(Key(1, 5), kRouter).code(), absl::StatusCode::kAlreadyExists);
}

}  // namespace
}  // namespace baton::worker
