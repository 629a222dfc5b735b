#include "kvstore/handoff_sink.h"

#include <functional>
#include <memory>
#include <numeric>
#include <string>

#include "base/check.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvstore/block_hash.h"

namespace baton::kvstore {
namespace {

constexpr LinkId kLink{1}, kOtherLink{2};
constexpr base::Id128 kPrefill = {.high = 9, .low = 1}, kOtherPrefill = {.high = 9, .low = 2};
const HandoffKey kKey = {.request_id = {.high = 1, .low = 1}, .attempt = 1};
constexpr uint32_t kLayers = 2, kBlockTokens = 8, kTokens = 20, kBlocks = 3;
constexpr uint64_t kBytes = 100;  // Of a block in a layer.
constexpr uint32_t kReserved = 5, kPool = 16;

std::vector<uint32_t> Tokens() {
  std::vector<uint32_t> tokens(kTokens);
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

AnnounceRange Range(uint32_t index, uint32_t layer, uint32_t first_block, uint32_t blocks) {
  return {.key = kKey, .range_index = index, .layer = layer, .first_block = first_block,
          .blocks = std::vector<KvBlockRef>(blocks, {KvBlockId{0}, 1})};
}

SealHandoff Sealed(uint32_t ranges) {
  return {.key = kKey,
          .range_count = ranges,
          .info = {.tokens = kTokens,
                   .last_block_digest = BlockDigests(Tokens(), kBlockTokens, "").back()}};
}

PushedBytes Piece(const AnnounceRange& range, uint64_t offset, uint64_t bytes) {
  return {.key = range.key, .range_index = range.range_index, .layer = range.layer,
          .first_block = range.first_block,
          .block_count = static_cast<uint32_t>(range.blocks.size()), .offset = offset,
          .bytes = bytes};
}

class SinkTest : public testing::Test {
 public:
  void SetUp() override { Restart(); }
  void TearDown() override {
    if (sink_ != nullptr) sink_->Shutdown(absl::UnavailableError("end of test"));
    Take();
  }

  void Restart() {
    if (sink_ != nullptr) TearDown();
    sink_ = std::make_unique<HandoffSink>(
        HandoffSinkOptions{.layers = kLayers, .block_tokens = kBlockTokens,
                           .layer_block_bytes = kBytes, .early_offers_max = 2, .ended_keys_max = 4},
        pool_);
  }

  std::vector<std::string> Take() {
    std::vector<std::string> said;
    for (SinkAction& action : sink_->TakeActions()) said.push_back(Say(action));
    return said;
  }

  static std::string Code(const absl::Status& status) {
    return std::string(absl::StatusCodeToString(status.code()));
  }

  std::string Say(SinkAction& action) {
    if (auto* ready = std::get_if<HandoffReady>(&action)) {
      pool_.Release(ready->received.blocks);
      pool_.Unreserve(ready->received.reserved_left);
      return "ready " + std::to_string(ready->received.blocks.size()) + " left " +
             std::to_string(ready->received.reserved_left);
    }
    if (const auto* failed = std::get_if<HandoffFailed>(&action)) {
      last_failure_ = failed->status;
      return "failed " + Code(failed->status);
    }
    if (std::holds_alternative<CloseLink>(action)) return "close";
    const SinkMessage& message = std::get<SendToSource>(action).message;
    if (std::holds_alternative<AcceptHandoff>(message)) return "accept";
    if (std::holds_alternative<CompleteHandoff>(message)) return "complete";
    if (const auto* acknowledge = std::get_if<AcknowledgeRange>(&message)) {
      return "acknowledge " + std::to_string(acknowledge->range_index);
    }
    return "refuse " + Code(std::get<RefuseHandoff>(message).reason);
  }

  void Expect(const HandoffKey& key = kKey) {
    CHECK_OK(pool_.Reserve(kReserved));
    sink_->Expect(key, {.prefill_incarnation = kPrefill, .tokens = Tokens(),
                        .blocks_reserved = kReserved, .deadline = now_ + absl::Hours(1)},
                  now_);
  }

  void LinkUp(RangeDelivery delivery = RangeDelivery::kCopied) {
    sink_->OnLinkUp(kLink, kPrefill, delivery, now_);
  }

  void Say(const SourceMessage& message) { sink_->OnMessage(kLink, message, now_); }
  void Offer() { Say(OfferHandoff{kKey, kTokens}); }

  // Copies and checks all that is due.
  void FetchAll(const absl::Status& status = absl::OkStatus()) {
    while (const auto fetch = sink_->NextFetch()) sink_->OnRangeFetched(*fetch, status, now_);
  }

  bool PoolIsWhole() const { return pool_.counts().held == 0 && pool_.counts().reserved == 0; }

  enum class Stage { kExpected, kAccepted, kPartial, kFetched, kSealed };

  void BringTo(Stage stage, RangeDelivery delivery = RangeDelivery::kCopied) {
    LinkUp(delivery);
    Expect();
    if (stage >= Stage::kAccepted) Offer();
    if (stage >= Stage::kPartial) Say(Range(0, 0, 0, kBlocks));
    if (stage >= Stage::kFetched) FetchAll();
    if (stage >= Stage::kSealed) Say(Sealed(2));
    Take();
  }

  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  KvBlockPool pool_{kPool};
  std::unique_ptr<HandoffSink> sink_;
  absl::Status last_failure_;
};

TEST_F(SinkTest, TakesOver) {
  LinkUp();
  Expect();
  EXPECT_THAT(Take(), testing::IsEmpty());
  Offer();
  EXPECT_THAT(Take(), testing::ElementsAre("accept"));
  EXPECT_EQ(pool_.counts().held, 0u) << "blocks are bound as ranges come";
  Say(Range(0, 0, 0, 2));
  FetchAll();
  EXPECT_THAT(Take(), testing::ElementsAre("acknowledge 0"));
  EXPECT_EQ(pool_.counts().held, 2u);
  Say(Range(1, 1, 0, 2));
  Say(Range(2, 0, 2, 1));
  Say(Range(3, 1, 2, 1));
  Say(Sealed(4));
  FetchAll();
  EXPECT_THAT(Take(), testing::ElementsAre("acknowledge 1", "acknowledge 2", "acknowledge 3",
                                           "complete", "ready 3 left 2"));
  EXPECT_TRUE(PoolIsWhole());
}

TEST_F(SinkTest, TheSealMayOvertakeRanges) {
  BringTo(Stage::kAccepted);
  Say(Sealed(2));
  Say(Range(1, 1, 0, kBlocks));
  FetchAll();
  Say(Range(0, 0, 0, kBlocks));
  FetchAll();
  EXPECT_THAT(Take(), testing::ElementsAre("acknowledge 1", "acknowledge 0", "complete",
                                           "ready 3 left 2"));
}

TEST_F(SinkTest, SayingItTwiceChangesNothing) {
  BringTo(Stage::kAccepted);
  Offer();
  Say(Range(0, 0, 0, kBlocks));
  Say(Range(0, 0, 0, kBlocks));
  FetchAll();
  Say(Range(0, 0, 0, kBlocks));
  FetchAll();
  Say(Sealed(2));
  Say(Sealed(2));
  Say(Range(1, 1, 0, kBlocks));
  FetchAll();
  EXPECT_THAT(Take(), testing::ElementsAre("acknowledge 0", "acknowledge 1", "complete",
                                           "ready 3 left 2"));
}

TEST_F(SinkTest, PushedBytesMayComeBeforeTheirAnnouncement) {
  BringTo(Stage::kAccepted, RangeDelivery::kPushed);
  const AnnounceRange first = Range(0, 0, 0, kBlocks), second = Range(1, 1, 0, kBlocks);
  for (const auto& [offset, bytes] : {std::pair(0, 150), std::pair(150, 150)}) {
    const PushedBytes piece = Piece(first, offset, bytes);
    ASSERT_EQ(sink_->OnBytes(kLink, piece, now_)->size(), kBlocks);
    sink_->OnBytesPlaced(piece, now_);
    EXPECT_FALSE(sink_->fetch_due());
  }
  Say(first);
  EXPECT_TRUE(sink_->fetch_due());
  Say(second);
  Say(Sealed(2));
  FetchAll();
  EXPECT_THAT(Take(), testing::ElementsAre("acknowledge 0"));
  const PushedBytes piece = Piece(second, 0, 300);
  ASSERT_TRUE(sink_->OnBytes(kLink, piece, now_).has_value());
  sink_->OnBytesPlaced(piece, now_);
  FetchAll();
  EXPECT_THAT(Take(), testing::ElementsAre("acknowledge 1", "complete", "ready 3 left 2"));
}

TEST_F(SinkTest, EndsOnceInEachStage) {
  struct Ender {
    const char* name;
    std::function<void(SinkTest&)> act;
    const char* terminal;  // Null: none, it was cancelled.
    bool needs_offer = false;
  };
  const std::vector<Ender> enders = {
      {"cancel", [](SinkTest& t) { t.sink_->Cancel(kKey); }, nullptr},
      {"abort", [](SinkTest& t) { t.Say(AbortHandoff{kKey, absl::InternalError("x")}); },
       "failed INTERNAL"},
      {"first token", [](SinkTest& t) { t.Say(AbortHandoff{kKey, absl::OkStatus()}); },
       "failed CANCELLED"},
      {"link lost",
       [](SinkTest& t) { t.sink_->OnLinkLost(kLink, absl::UnavailableError("gone")); },
       "failed UNAVAILABLE"},
      {"deadline", [](SinkTest& t) {
         t.sink_->OnMessage(kLink, Heartbeat{}, t.now_ + absl::Hours(1));
         t.sink_->Tick(t.now_ + absl::Hours(1));
       }, "failed DEADLINE_EXCEEDED"},
      {"silent link", [](SinkTest& t) { t.sink_->Tick(t.now_ + absl::Seconds(3)); },
       "failed UNAVAILABLE"},
      {"nonsense", [](SinkTest& t) { t.Say(Range(9, kLayers, 0, 1)); }, "failed INVALID_ARGUMENT",
       true},
      {"shutdown", [](SinkTest& t) { t.sink_->Shutdown(absl::UnavailableError("x")); },
       "failed UNAVAILABLE"},
  };
  for (const Ender& ender : enders) {
    for (const Stage stage : {Stage::kExpected, Stage::kAccepted, Stage::kPartial, Stage::kFetched,
                              Stage::kSealed}) {
      if (ender.needs_offer && stage == Stage::kExpected) continue;
      SCOPED_TRACE(testing::Message() << ender.name << " in stage " << static_cast<int>(stage));
      Restart();
      BringTo(stage);
      ender.act(*this);
      std::vector<std::string> terminals = Take();
      std::erase_if(terminals, [](const std::string& s) { return !s.starts_with("failed"); });
      if (ender.terminal == nullptr) {
        EXPECT_THAT(terminals, testing::IsEmpty());
      } else {
        EXPECT_THAT(terminals, testing::ElementsAre(ender.terminal));
      }
      EXPECT_TRUE(PoolIsWhole());
      EXPECT_FALSE(sink_->Cancel(kKey));
      for (const Ender& again : enders) again.act(*this);
      Offer();
      Say(Range(1, 1, 0, kBlocks));
      Say(Sealed(2));
      FetchAll();
      EXPECT_THAT(Take(), testing::Each(testing::AnyOf("refuse NOT_FOUND", "refuse CANCELLED", "close")));
      EXPECT_TRUE(PoolIsWhole());
    }
  }
}

TEST_F(SinkTest, NonsenseFailsBothSidesByName) {
  struct Case {
    const char* message;
    std::function<void(SinkTest&)> act;
  };
  const Case cases[] = {
      {"layer is 2, must be below 2", [](SinkTest& t) { t.Say(Range(0, 2, 0, 1)); }},
      {"blocks are 3 + 1, the prompt has 3", [](SinkTest& t) { t.Say(Range(0, 0, 3, 1)); }},
      {"blocks are 0 + 4, the prompt has 3", [](SinkTest& t) { t.Say(Range(0, 0, 0, 4)); }},
      {"blocks are 4294967295 + 2", [](SinkTest& t) { t.Say(Range(0, 0, UINT32_MAX, 2)); }},
      {"blocks are 0 + 0", [](SinkTest& t) { t.Say(Range(0, 0, 0, 0)); }},
      {"block 1 of layer 0 was in another range",
       [](SinkTest& t) {
         t.Say(Range(0, 0, 0, 2));
         t.Say(Range(1, 0, 1, 2));
       }},
      {"range 0 was layer 0, blocks 0 + 2 and is now layer 1",
       [](SinkTest& t) {
         t.Say(Range(0, 0, 0, 2));
         t.Say(Range(0, 1, 0, 2));
       }},
      {"sealed are 1 ranges, range 1 came",
       [](SinkTest& t) {
         t.Say(Range(1, 0, 0, 2));
         t.Say(Sealed(1));
       }},
      {"range index is 2, sealed were 2",
       [](SinkTest& t) {
         t.Say(Sealed(2));
         t.Say(Range(2, 0, 0, 2));
       }},
      {"range_count is 0", [](SinkTest& t) { t.Say(Sealed(0)); }},
      {"range_count is 7, must be in [1, 6]", [](SinkTest& t) { t.Say(Sealed(7)); }},
      {"sealed with 3 of 6 (layer, block) pairs never announced",
       [](SinkTest& t) {
         t.Say(Range(0, 0, 0, kBlocks));
         t.Say(Sealed(1));
         t.FetchAll();
       }},
      {"sealed are 21 tokens, expected were 20",
       [](SinkTest& t) {
         SealHandoff seal = Sealed(2);
         seal.info.tokens = 21;
         t.Say(seal);
       }},
      {"bytes were pushed on a link without pushing",
       [](SinkTest& t) { t.sink_->OnBytes(kLink, Piece(Range(0, 0, 0, 1), 0, 1), t.now_); }},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(test.message);
    Restart();
    BringTo(Stage::kAccepted);
    test.act(*this);
    const std::vector<std::string> said = Take();
    ASSERT_GE(said.size(), 2u);
    EXPECT_EQ(said[said.size() - 2], "refuse INVALID_ARGUMENT");
    EXPECT_EQ(said.back(), "failed INVALID_ARGUMENT");
    EXPECT_THAT(std::string(last_failure_.message()), testing::HasSubstr(test.message));
    EXPECT_TRUE(PoolIsWhole());
  }
}

TEST_F(SinkTest, PushedNonsenseFailsByName) {
  const AnnounceRange range = Range(0, 0, 0, 2);
  struct Case {
    const char* message;
    PushedBytes pushed;
  };
  const Case cases[] = {
      {"offset is 50, must be 100", Piece(range, 50, 10)},
      {"offset is 150, must be 100", Piece(range, 150, 10)},
      {"101 bytes at 100, the range has 200", Piece(range, 100, 101)},
      {"0 bytes at 100", Piece(range, 100, 0)},
      {"layer is 7, must be below 2", Piece(Range(1, 7, 0, 1), 0, 10)},
      {"range 0 was layer 0, blocks 0 + 2 and is now layer 0, blocks 0 + 1",
       Piece(Range(0, 0, 0, 1), 100, 10)},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(test.message);
    Restart();
    BringTo(Stage::kAccepted, RangeDelivery::kPushed);
    ASSERT_TRUE(sink_->OnBytes(kLink, Piece(range, 0, 100), now_).has_value());
    sink_->OnBytesPlaced(Piece(range, 0, 100), now_);
    EXPECT_FALSE(sink_->OnBytes(kLink, test.pushed, now_).has_value());
    EXPECT_THAT(Take(), testing::ElementsAre("refuse INVALID_ARGUMENT", "failed INVALID_ARGUMENT"));
    EXPECT_THAT(std::string(last_failure_.message()), testing::HasSubstr(test.message));
    EXPECT_TRUE(PoolIsWhole());
    EXPECT_FALSE(sink_->OnBytes(kLink, Piece(range, 100, 10), now_).has_value()) << "late";
    EXPECT_THAT(Take(), testing::IsEmpty());
  }
}

TEST_F(SinkTest, WrongBytesFailBothSides) {
  for (const absl::Status& status :
       {absl::DataLossError("checksum"), absl::UnavailableError("another owner")}) {
    Restart();
    BringTo(Stage::kPartial);
    FetchAll(status);
    EXPECT_THAT(Take(), testing::ElementsAre("refuse " + Code(status), "failed " + Code(status)));
    EXPECT_TRUE(PoolIsWhole());
  }
}

TEST_F(SinkTest, AnotherDigestIsDataLoss) {
  BringTo(Stage::kAccepted);
  SealHandoff seal = Sealed(2);
  seal.info.last_block_digest[0] ^= 1;
  Say(seal);
  EXPECT_THAT(Take(), testing::ElementsAre("refuse DATA_LOSS", "failed DATA_LOSS"));
}

TEST_F(SinkTest, HoldsAnEarlyOffer) {
  LinkUp();
  Offer();
  EXPECT_THAT(Take(), testing::IsEmpty());
  Expect();
  EXPECT_THAT(Take(), testing::ElementsAre("accept"));
  EXPECT_EQ(sink_->early_offer_count(), 0u);
}

TEST_F(SinkTest, RefusesAnEarlyOfferAfterAWhile) {
  LinkUp();
  Offer();
  EXPECT_EQ(sink_->NextDeadline(), now_ + absl::Seconds(1));
  sink_->Tick(now_ + absl::Seconds(1));
  EXPECT_THAT(Take(), testing::ElementsAre("refuse NOT_FOUND"));
  EXPECT_EQ(sink_->early_offer_count(), 0u);
}

TEST_F(SinkTest, HoldsOnlySoManyEarlyOffers) {
  LinkUp();
  for (uint64_t request = 1; request <= 3; ++request) {
    Say(OfferHandoff{{.request_id = {.high = 5, .low = request}, .attempt = 1}, kTokens});
  }
  EXPECT_THAT(Take(), testing::ElementsAre("refuse NOT_FOUND"));
  sink_->OnLinkLost(kLink, absl::UnavailableError("gone"));
  EXPECT_EQ(sink_->early_offer_count(), 0u);
}

// A reservation was refused: its offer makes room for others at once, be it here already or still to come.
TEST_F(SinkTest, DoesNotHoldTheOfferOfWhatIsNotWanted) {
  LinkUp();
  Offer();
  sink_->Decline(kKey);
  EXPECT_EQ(sink_->early_offer_count(), 0u);
  Offer();
  EXPECT_EQ(sink_->early_offer_count(), 0u);
  Say(AbortHandoff{kKey, absl::CancelledError("the router cancelled")});
  EXPECT_EQ(sink_->early_offer_count(), 0u);
  EXPECT_THAT(Take(), testing::ElementsAre("refuse CANCELLED", "refuse CANCELLED"));
}

TEST_F(SinkTest, DecliningWhatIsExpectedDoesNothing) {
  BringTo(Stage::kAccepted);
  sink_->Decline(kKey);
  EXPECT_THAT(Take(), testing::IsEmpty());
  EXPECT_TRUE(sink_->Cancel(kKey));
}

// The prefill worker died before there was a link whose loss could tell of it.
TEST_F(SinkTest, WhatIsNeverOfferedIsGivenUp) {
  Expect();
  EXPECT_EQ(sink_->NextDeadline(), now_ + absl::Seconds(10));
  sink_->Tick(now_ + absl::Seconds(10) - absl::Nanoseconds(1));
  EXPECT_THAT(Take(), testing::IsEmpty());
  sink_->Tick(now_ + absl::Seconds(10));
  EXPECT_THAT(Take(), testing::ElementsAre("failed UNAVAILABLE"));
  EXPECT_TRUE(PoolIsWhole());
}

// Prefill was so fast that its answer ended before the reservation was made.
TEST_F(SinkTest, AnEarlyAbortIsRemembered) {
  LinkUp();
  Offer();
  Say(AbortHandoff{kKey, absl::OkStatus()});
  Expect();
  EXPECT_THAT(Take(), testing::ElementsAre("failed CANCELLED"));
  EXPECT_TRUE(PoolIsWhole());
}

TEST_F(SinkTest, AnOfferAfterACancelIsRefusedAtOnce) {
  LinkUp();
  Expect();
  EXPECT_TRUE(sink_->Cancel(kKey));
  Offer();
  EXPECT_THAT(Take(), testing::ElementsAre("refuse CANCELLED"));
}

TEST_F(SinkTest, OffersOfOthersDoNotCount) {
  LinkUp();
  sink_->OnLinkUp(kOtherLink, kOtherPrefill, RangeDelivery::kCopied, now_);
  Expect();
  sink_->OnMessage(kOtherLink, OfferHandoff{kKey, kTokens}, now_);
  EXPECT_THAT(Take(), testing::ElementsAre("refuse NOT_FOUND"));
  sink_->OnMessage(kOtherLink, AbortHandoff{kKey, absl::OkStatus()}, now_);
  sink_->OnLinkLost(kOtherLink, absl::UnavailableError("gone"));
  EXPECT_THAT(Take(), testing::IsEmpty());
  Offer();
  EXPECT_THAT(Take(), testing::ElementsAre("accept"));
}

TEST_F(SinkTest, AnOfferOfAnotherLengthFails) {
  LinkUp();
  Expect();
  Say(OfferHandoff{kKey, kTokens + 1});
  EXPECT_THAT(Take(), testing::ElementsAre("refuse INVALID_ARGUMENT", "failed INVALID_ARGUMENT"));
}

// What the prefill worker still computes is its own affair, as long as it lives.
TEST_F(SinkTest, AComputingSourceHasNoDeadlineWhileItsHeartBeats) {
  BringTo(Stage::kFetched);
  for (int i = 0; i < 100; ++i) {
    now_ += absl::Seconds(2);
    Say(Heartbeat{});
    sink_->Tick(now_);
  }
  EXPECT_THAT(Take(), testing::IsEmpty());
  sink_->Tick(now_ + absl::Seconds(3));
  EXPECT_THAT(Take(), testing::ElementsAre("close", "failed UNAVAILABLE"));
}

TEST_F(SinkTest, ASourceThatOwesMustMove) {
  struct Case {
    const char* name;
    RangeDelivery delivery;
    std::function<void(SinkTest&)> act;
  };
  const Case cases[] = {
      {"announced, not pushed", RangeDelivery::kPushed,
       [](SinkTest& t) { t.Say(Range(0, 0, 0, 1)); }},
      {"pushed, not announced", RangeDelivery::kPushed,
       [](SinkTest& t) {
         t.sink_->OnBytes(kLink, Piece(Range(0, 0, 0, 1), 0, 100), t.now_);
         t.sink_->OnBytesPlaced(Piece(Range(0, 0, 0, 1), 0, 100), t.now_);
       }},
      {"sealed, not announced", RangeDelivery::kCopied, [](SinkTest& t) { t.Say(Sealed(2)); }},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(test.name);
    Restart();
    BringTo(Stage::kAccepted, test.delivery);
    test.act(*this);
    const absl::Time deadline = now_ + absl::Seconds(3);
    EXPECT_EQ(sink_->NextDeadline(), deadline);
    sink_->OnMessage(kLink, Heartbeat{}, deadline - absl::Seconds(1));
    sink_->Tick(deadline - absl::Nanoseconds(1));
    EXPECT_THAT(Take(), testing::IsEmpty());
    sink_->Tick(deadline);
    EXPECT_THAT(Take(), testing::ElementsAre("refuse UNAVAILABLE", "failed UNAVAILABLE"));
  }
}

TEST_F(SinkTest, ANewLinkOfAWorkerTakesTheOldOnesPlace) {
  BringTo(Stage::kAccepted);
  const HandoffKey waiting = {.request_id = {.high = 1, .low = 2}, .attempt = 1};
  Expect(waiting);
  sink_->OnLinkUp(kOtherLink, kPrefill, RangeDelivery::kCopied, now_);
  EXPECT_THAT(Take(), testing::ElementsAre("close", "failed UNAVAILABLE"));
  sink_->OnMessage(kOtherLink, OfferHandoff{waiting, kTokens}, now_);
  EXPECT_THAT(Take(), testing::ElementsAre("accept"));
}

TEST_F(SinkTest, AFetchOfACancelledHandoffIsForgotten) {
  BringTo(Stage::kPartial);
  const auto fetch = sink_->NextFetch();
  ASSERT_TRUE(fetch.has_value());
  sink_->OnRangeFetched(*fetch, absl::OkStatus(), now_);
  Say(Range(1, 1, 0, kBlocks));
  ASSERT_TRUE(sink_->Cancel(kKey));
  EXPECT_FALSE(sink_->NextFetch().has_value());
  EXPECT_TRUE(PoolIsWhole());
}

}  // namespace
}  // namespace baton::kvstore
