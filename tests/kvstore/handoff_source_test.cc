#include "kvstore/handoff_source.h"

#include <functional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton::kvstore {
namespace {

constexpr LinkId kLink{1}, kOtherLink{2};
const HandoffKey kKey = {.request_id = {.high = 1, .low = 1}, .attempt = 1};
const HandoffKey kOtherKey = {.request_id = {.high = 1, .low = 2}, .attempt = 1};

std::vector<KvBlockRef> Blocks(uint32_t count) {
  std::vector<KvBlockRef> blocks;
  for (uint32_t b = 0; b < count; ++b) blocks.push_back({KvBlockId{b}, 1});
  return blocks;
}

// One source and what it wanted, spelled in words so that tests read as transcripts.
class SourceTest : public testing::Test {
 public:
  void SetUp() override { Restart(); }
  void Restart() { source_.emplace(HandoffSourceOptions{.range_blocks_max = 4}); }

  std::vector<std::string> Take() {
    std::vector<std::string> said;
    for (const SourceAction& action : source_->TakeActions()) said.push_back(Say(action));
    return said;
  }

  static std::string Say(const SourceAction& action) {
    if (const auto* ended = std::get_if<HandoffEnded>(&action)) {
      return "ended " + std::string(absl::StatusCodeToString(ended->status.code()));
    }
    const SourceMessage& message = std::get<SendToSink>(action).message;
    if (std::holds_alternative<OfferHandoff>(message)) return "offer";
    if (const auto* range = std::get_if<AnnounceRange>(&message)) {
      return "range " + std::to_string(range->range_index) + " layer " +
             std::to_string(range->layer) + " blocks " + std::to_string(range->first_block) + "+" +
             std::to_string(range->blocks.size());
    }
    if (const auto* seal = std::get_if<SealHandoff>(&message)) {
      return "seal " + std::to_string(seal->range_count);
    }
    const auto& abort = std::get<AbortHandoff>(message);
    return "abort " + std::string(absl::StatusCodeToString(abort.reason.code()));
  }

  enum class Stage { kConnecting, kOffered, kAccepted, kAnnounced, kSealed };

  void BringTo(Stage stage) {
    source_->Begin(kKey, kLink, 40, now_);
    if (stage >= Stage::kOffered) source_->OnLinkUp(kLink, now_);
    if (stage >= Stage::kAccepted) source_->OnMessage(kLink, AcceptHandoff{kKey}, now_);
    if (stage >= Stage::kAnnounced) source_->Announce(kKey, 0, 0, Blocks(3), now_);
    if (stage >= Stage::kSealed) source_->Seal(kKey, {.tokens = 40}, now_);
    source_->TakeActions();
  }

  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  std::optional<HandoffSource> source_;
};

TEST_F(SourceTest, HandsOverInOrder) {
  source_->Begin(kKey, kLink, 40, now_);
  EXPECT_THAT(Take(), testing::IsEmpty());
  source_->OnLinkUp(kLink, now_);
  EXPECT_THAT(Take(), testing::ElementsAre("offer"));
  source_->OnMessage(kLink, AcceptHandoff{kKey}, now_);
  source_->Announce(kKey, 0, 0, Blocks(3), now_);
  source_->Announce(kKey, 1, 0, Blocks(3), now_);
  source_->Seal(kKey, {.tokens = 40}, now_);
  EXPECT_THAT(Take(), testing::ElementsAre("range 0 layer 0 blocks 0+3", "range 1 layer 1 blocks 0+3",
                                           "seal 2"));
  source_->OnMessage(kLink, AcknowledgeRange{kKey, 1}, now_);
  source_->OnMessage(kLink, AcknowledgeRange{kKey, 0}, now_);
  EXPECT_THAT(Take(), testing::IsEmpty());
  source_->OnMessage(kLink, CompleteHandoff{kKey}, now_);
  EXPECT_THAT(Take(), testing::ElementsAre("ended OK"));
  EXPECT_FALSE(source_->knows(kKey));
}

TEST_F(SourceTest, HoldsRangesAndSealUntilAccepted) {
  BringTo(Stage::kOffered);
  source_->Announce(kKey, 0, 0, Blocks(1), now_);
  source_->Announce(kKey, 1, 0, Blocks(1), now_);
  source_->Seal(kKey, {.tokens = 5}, now_);
  EXPECT_THAT(Take(), testing::IsEmpty());
  source_->OnMessage(kLink, AcceptHandoff{kKey}, now_);
  EXPECT_THAT(Take(), testing::ElementsAre("range 0 layer 0 blocks 0+1", "range 1 layer 1 blocks 0+1",
                                           "seal 2"));
}

TEST_F(SourceTest, CutsLongAnnouncements) {
  BringTo(Stage::kAccepted);
  source_->Announce(kKey, 7, 2, Blocks(9), now_);
  EXPECT_THAT(Take(), testing::ElementsAre("range 0 layer 7 blocks 2+4", "range 1 layer 7 blocks 6+4",
                                           "range 2 layer 7 blocks 10+1"));
}

// Whatever ends a hand-off, in whatever stage, ends it once, and nothing revives it.
TEST_F(SourceTest, EndsOnceInEachStage) {
  struct Ender {
    const char* name;
    std::function<void(SourceTest&)> act;
    const char* ended;
  };
  const std::vector<Ender> enders = {
      {"abort", [](SourceTest& t) { t.source_->Abort(kKey, absl::InternalError("x")); },
       "ended CANCELLED"},
      {"first token", [](SourceTest& t) { t.source_->Abort(kKey, absl::OkStatus()); },
       "ended CANCELLED"},
      {"link lost",
       [](SourceTest& t) { t.source_->OnLinkLost(kLink, absl::UnavailableError("gone")); },
       "ended UNAVAILABLE"},
      {"refused",
       [](SourceTest& t) {
         t.source_->OnMessage(kLink, RefuseHandoff{kKey, absl::NotFoundError("x")}, t.now_);
       },
       "ended NOT_FOUND"},
      {"refused with OK",
       [](SourceTest& t) { t.source_->OnMessage(kLink, RefuseHandoff{kKey, {}}, t.now_); },
       "ended INTERNAL"},
      {"acknowledged too much",
       [](SourceTest& t) { t.source_->OnMessage(kLink, AcknowledgeRange{kKey, 99}, t.now_); },
       "ended INTERNAL"},
  };
  for (const Ender& ender : enders) {
    for (const Stage stage : {Stage::kConnecting, Stage::kOffered, Stage::kAccepted,
                              Stage::kAnnounced, Stage::kSealed}) {
      SCOPED_TRACE(testing::Message() << ender.name << " in stage " << static_cast<int>(stage));
      Restart();
      BringTo(stage);
      ender.act(*this);
      const std::vector<std::string> said = Take();
      EXPECT_EQ(said.back(), ender.ended);
      EXPECT_EQ(std::count_if(said.begin(), said.end(),
                              [](const std::string& s) { return s.starts_with("ended"); }),
                1);
      for (const Ender& again : enders) again.act(*this);
      source_->Announce(kKey, 0, 0, Blocks(1), now_);
      source_->Seal(kKey, {}, now_);
      source_->OnMessage(kLink, AcceptHandoff{kKey}, now_);
      source_->OnMessage(kLink, CompleteHandoff{kKey}, now_);
      source_->Tick(now_ + absl::Hours(1));
      EXPECT_THAT(Take(), testing::IsEmpty());
      EXPECT_EQ(source_->NextDeadline(), absl::InfiniteFuture());
      EXPECT_EQ(source_->pins().blocks, 0u);
    }
  }
}

TEST_F(SourceTest, CompleteBeforeTheSealIsAnError) {
  BringTo(Stage::kAnnounced);
  source_->OnMessage(kLink, CompleteHandoff{kKey}, now_);
  EXPECT_THAT(Take(), testing::ElementsAre("abort INTERNAL", "ended INTERNAL"));
}

// Else the sink would wait for an offer until the request's deadline.
TEST_F(SourceTest, AbortBeforeTheLinkIsUpIsToldLater) {
  BringTo(Stage::kConnecting);
  source_->Abort(kKey, absl::OkStatus());
  EXPECT_THAT(Take(), testing::ElementsAre("ended CANCELLED"));
  source_->OnLinkUp(kLink, now_);
  EXPECT_THAT(Take(), testing::ElementsAre("abort OK"));
}

TEST_F(SourceTest, WaitsForThePeerOnlySoLong) {
  for (const Stage stage :
       {Stage::kConnecting, Stage::kOffered, Stage::kAnnounced, Stage::kSealed}) {
    SCOPED_TRACE(testing::Message() << "stage " << static_cast<int>(stage));
    Restart();
    BringTo(stage);
    const absl::Time deadline = now_ + absl::Seconds(3);
    EXPECT_EQ(source_->NextDeadline(), deadline);
    source_->Tick(deadline - absl::Nanoseconds(1));
    EXPECT_THAT(Take(), testing::IsEmpty());
    source_->Tick(deadline);
    EXPECT_EQ(Take().back(), "ended UNAVAILABLE");
  }
}

TEST_F(SourceTest, ProgressMovesTheDeadline) {
  BringTo(Stage::kAccepted);
  source_->Announce(kKey, 0, 0, Blocks(8), now_);
  now_ += absl::Seconds(2);
  source_->OnMessage(kLink, AcknowledgeRange{kKey, 0}, now_);
  EXPECT_EQ(source_->NextDeadline(), now_ + absl::Seconds(3));
  now_ += absl::Seconds(2);
  source_->OnMessage(kLink, AcknowledgeRange{kKey, 0}, now_);  // The same again is no progress.
  EXPECT_EQ(source_->NextDeadline(), now_ + absl::Seconds(1));
}

// A long prefill computes for minutes between two announcements: the peer is not to blame.
TEST_F(SourceTest, AComputingEngineHasNoDeadline) {
  BringTo(Stage::kAnnounced);
  source_->OnMessage(kLink, AcknowledgeRange{kKey, 0}, now_);
  EXPECT_EQ(source_->NextDeadline(), absl::InfiniteFuture());
  now_ += absl::Minutes(10);
  source_->Tick(now_);
  EXPECT_THAT(Take(), testing::Not(testing::Contains("ended UNAVAILABLE")));
  source_->Announce(kKey, 1, 0, Blocks(3), now_);
  EXPECT_EQ(source_->NextDeadline(), now_ + absl::Seconds(3));
}

TEST_F(SourceTest, OtherLinksHaveNoSay) {
  BringTo(Stage::kAnnounced);
  source_->OnMessage(kOtherLink, RefuseHandoff{kKey, absl::NotFoundError("x")}, now_);
  source_->OnMessage(kOtherLink, CompleteHandoff{kKey}, now_);
  source_->OnMessage(kLink, CompleteHandoff{kOtherKey}, now_);
  source_->OnLinkLost(kOtherLink, absl::UnavailableError("gone"));
  EXPECT_THAT(Take(), testing::IsEmpty());
  EXPECT_TRUE(source_->knows(kKey));
}

TEST_F(SourceTest, TakesOnlySoMany) {
  HandoffSource small({.handoffs_max = 1});
  small.Begin(kKey, kLink, 1, now_);
  small.Begin(kOtherKey, kLink, 1, now_);
  const std::vector<SourceAction> actions = small.TakeActions();
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(Say(actions[0]), "ended RESOURCE_EXHAUSTED");
}

TEST_F(SourceTest, CountsPins) {
  BringTo(Stage::kAnnounced);
  const absl::Time first = now_;
  now_ += absl::Seconds(1);
  source_->Announce(kKey, 1, 0, Blocks(5), now_);
  EXPECT_EQ(source_->pins().owed_layer_blocks, 8u);
  EXPECT_EQ(source_->pins().blocks, 5u);
  EXPECT_EQ(source_->pins().oldest, first);
  source_->OnMessage(kLink, AcknowledgeRange{kKey, 0}, now_);
  EXPECT_EQ(source_->pins().owed_layer_blocks, 5u);
  source_->Abort(kKey, absl::OkStatus());
  EXPECT_EQ(source_->pins().owed_layer_blocks, 0u);
  EXPECT_EQ(source_->pins().oldest, std::nullopt);
}

}  // namespace
}  // namespace baton::kvstore
