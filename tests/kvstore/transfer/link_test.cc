// LinkSender and LinkReceiver over a real port, with each transport.
#include <thread>

#include "gmock/gmock.h"
#include "tests/kvstore/transfer/link_fixture.h"

namespace baton::kvstore {
namespace {

constexpr uint32_t kBlockTokens = kTestLayout.block_tokens;

uint32_t BlocksOf(uint32_t tokens) { return (tokens + kBlockTokens - 1) / kBlockTokens; }

class LinkTest : public testing::TestWithParam<TransportKind> {
 protected:
  LinkSenderOptions SenderOptions() const {
    LinkSenderOptions options;
    options.transports = {GetParam()};
    return options;
  }

  // Announces all blocks, layer by layer, in two chunks.
  static void AnnounceAll(PrefillSide& prefill, const HandoffKey& key,
                          absl::Span<const KvBlockId> blocks) {
    const size_t half = blocks.size() / 2;
    for (const auto& [begin, end] : {std::pair(size_t{0}, half), std::pair(half, blocks.size())}) {
      for (uint32_t layer = 0; layer < kTestLayout.layers; ++layer) {
        prefill.sender->Announce(key, layer, static_cast<uint32_t>(begin),
                                 blocks.subspan(begin, end - begin));
      }
    }
  }

  LoopbackRegistry registry_;
};

TEST_P(LinkTest, HandsOverTheSameBytes) {
  PrefillSide prefill(64, SenderOptions(), &registry_);
  DecodeSide decode(64, {}, &registry_);
  const HandoffKey key = MakeKey(1);
  const std::vector<uint32_t> tokens = TestTokens(kBlockTokens * 5 + 3, 1);
  const std::vector<KvBlockId> blocks = prefill.Write(6, 1);

  decode.Expect(key, prefill.parts.incarnation, tokens, 9);
  prefill.sender->Begin(key, decode.peer(), static_cast<uint32_t>(tokens.size()));
  AnnounceAll(prefill, key, blocks);
  prefill.sender->Seal(key, TestSeal(tokens, kBlockTokens));

  EXPECT_EQ(decode.events.Await(key), absl::OkStatus());
  EXPECT_EQ(prefill.events.Await(key), absl::OkStatus());
  const ReceivedHandoff received = decode.events.TakeReceived(key);
  EXPECT_TRUE(SameBytes(prefill.parts.arena->view(), blocks, decode.parts.arena->view(),
                        received.blocks));
  EXPECT_EQ(received.reserved_left, 3u);
  EXPECT_EQ(received.seal.tokens, tokens.size());
  EXPECT_EQ(received.seal.first_tokens, TestSeal(tokens, kBlockTokens).first_tokens);
  EXPECT_EQ(decode.parts.pool.counts().held, 6u);
  prefill.parts.pool.Release(blocks);
  decode.Free(received);
  EXPECT_EQ(prefill.sender->pins().owed_bytes, 0u);

  const std::string text = decode.parts.metrics.Text();
  EXPECT_THAT(text, testing::HasSubstr("baton_handoffs_total{outcome=\"ok\",side=\"sink\"} 1"));
  EXPECT_THAT(text, testing::HasSubstr("transport=\"" + std::string(Name(GetParam())) + "\"} " +
                                       std::to_string(6 * kTestLayout.block_bytes())));
}

TEST_P(LinkTest, ManyAtOnceWithCancelsAndAborts) {
  constexpr uint32_t kHandoffs = 48;
  PrefillSide prefill(1024, SenderOptions(), &registry_);
  DecodeSide decode(1024, {}, &registry_);
  std::vector<std::vector<uint32_t>> tokens(kHandoffs);
  std::vector<std::vector<KvBlockId>> blocks(kHandoffs);
  for (uint32_t i = 0; i < kHandoffs; ++i) {
    tokens[i] = TestTokens(1 + 37 * i % 250, i);
    blocks[i] = prefill.Write(BlocksOf(static_cast<uint32_t>(tokens[i].size())), i);
  }
  const auto aborted = [](uint32_t i) { return i % 6 == 1; };
  const auto cancelled = [](uint32_t i) { return i % 6 == 2; };
  std::thread admission([&] {
    for (uint32_t i = 0; i < kHandoffs; ++i) {
      const uint32_t needed = BlocksOf(static_cast<uint32_t>(tokens[i].size()));
      decode.Expect(MakeKey(i), prefill.parts.incarnation, tokens[i], needed + 1);
    }
  });
  for (uint32_t i = 0; i < kHandoffs; ++i) {
    const HandoffKey key = MakeKey(i);
    prefill.sender->Begin(key, decode.peer(), static_cast<uint32_t>(tokens[i].size()));
    AnnounceAll(prefill, key, blocks[i]);
    if (aborted(i)) {
      prefill.sender->Abort(key, absl::OkStatus());
    } else {
      prefill.sender->Seal(key, TestSeal(tokens[i], kBlockTokens));
    }
  }
  admission.join();
  std::set<uint32_t> cancelled_in_time;
  for (uint32_t i = 0; i < kHandoffs; ++i) {
    if (cancelled(i) && decode.receiver->Cancel(MakeKey(i))) cancelled_in_time.insert(i);
  }
  for (uint32_t i = 0; i < kHandoffs; ++i) {
    const HandoffKey key = MakeKey(i);
    SCOPED_TRACE(testing::Message() << "hand-off " << i);
    const absl::Status source = prefill.events.Await(key);
    prefill.parts.pool.Release(blocks[i]);
    if (cancelled_in_time.contains(i)) {
      EXPECT_EQ(source.code(), absl::StatusCode::kCancelled) << source;
      EXPECT_FALSE(decode.events.ended(key));
      continue;
    }
    const absl::Status sink = decode.events.Await(key);
    if (aborted(i)) {
      EXPECT_EQ(source.code(), absl::StatusCode::kCancelled) << source;
      EXPECT_EQ(sink.code(), absl::StatusCode::kCancelled) << sink;
      EXPECT_THAT(std::string(sink.message()), testing::HasSubstr("first token"));
      continue;
    }
    ASSERT_EQ(source, absl::OkStatus());
    ASSERT_EQ(sink, absl::OkStatus());
    const ReceivedHandoff received = decode.events.TakeReceived(key);
    EXPECT_TRUE(SameBytes(prefill.parts.arena->view(), blocks[i], decode.parts.arena->view(),
                          received.blocks));
    decode.Free(received);
  }
  EXPECT_EQ(decode.parts.pool.counts().held, 0u);
  EXPECT_EQ(decode.parts.pool.counts().reserved, 0u);
}

// A block larger than a frame is cut, and put together again.
TEST_P(LinkTest, BlocksLargerThanAFrame) {
  constexpr kernels::KvLayout kLarge = {.layers = 1, .kv_heads = 13, .head_dim = 256,
                                        .block_tokens = 128, .type = kernels::KvType::kF32};
  static_assert(13 * 2 * 256 * 128 * 4 > 3 << 20);
  PrefillSide prefill(3, SenderOptions(), &registry_, kLarge);
  DecodeSide decode(3, {}, &registry_, kLarge);
  const HandoffKey key = MakeKey(1);
  const std::vector<uint32_t> tokens = TestTokens(300, 1);
  const std::vector<KvBlockId> blocks = prefill.Write(3, 1);
  decode.Expect(key, prefill.parts.incarnation, tokens, 3);
  prefill.sender->Begin(key, decode.peer(), 300);
  prefill.sender->Announce(key, 0, 0, blocks);
  prefill.sender->Seal(key, TestSeal(tokens, kLarge.block_tokens));
  ASSERT_EQ(decode.events.Await(key), absl::OkStatus());
  ASSERT_EQ(prefill.events.Await(key), absl::OkStatus());
  const ReceivedHandoff received = decode.events.TakeReceived(key);
  EXPECT_TRUE(SameBytes(prefill.parts.arena->view(), blocks, decode.parts.arena->view(),
                        received.blocks));
  prefill.parts.pool.Release(blocks);
  decode.Free(received);
}

TEST_P(LinkTest, AnOfferMayOvertakeItsReservation) {
  PrefillSide prefill(8, SenderOptions(), &registry_);
  LinkReceiverOptions options;
  options.early_offer_hold = kPatience;
  DecodeSide decode(8, options, &registry_);
  const HandoffKey first = MakeKey(1), second = MakeKey(2);
  const std::vector<uint32_t> tokens = TestTokens(20, 1);
  const std::vector<KvBlockId> blocks = prefill.Write(2, 1);
  for (const HandoffKey& key : {first, second}) {
    prefill.sender->Begin(key, decode.peer(), 20);
    AnnounceAll(prefill, key, blocks);
    prefill.sender->Seal(key, TestSeal(tokens, kBlockTokens));
  }
  // The second one's whole hand-off shows that the first one's offer, sent before it, is there.
  decode.Expect(second, prefill.parts.incarnation, tokens, 2);
  ASSERT_EQ(prefill.events.Await(second), absl::OkStatus());
  EXPECT_FALSE(prefill.events.ended(first));
  decode.Expect(first, prefill.parts.incarnation, tokens, 2);
  EXPECT_EQ(prefill.events.Await(first), absl::OkStatus());
  for (const HandoffKey& key : {first, second}) {
    ASSERT_EQ(decode.events.Await(key), absl::OkStatus());
    decode.Free(decode.events.TakeReceived(key));
  }
  prefill.parts.pool.Release(blocks);
}

TEST_P(LinkTest, AnOfferWithoutReservationIsRefused) {
  PrefillSide prefill(8, SenderOptions(), &registry_);
  LinkReceiverOptions options;
  options.early_offer_hold = absl::Milliseconds(50);
  DecodeSide decode(8, options, &registry_);
  prefill.sender->Begin(MakeKey(1), decode.peer(), 20);
  EXPECT_EQ(prefill.events.Await(MakeKey(1)).code(), absl::StatusCode::kNotFound);
}

TEST_P(LinkTest, AnotherDigestIsDataLoss) {
  PrefillSide prefill(8, SenderOptions(), &registry_);
  DecodeSide decode(8, {}, &registry_);
  const std::vector<uint32_t> theirs = TestTokens(20, 1), ours = TestTokens(20, 2);
  const std::vector<KvBlockId> blocks = prefill.Write(2, 1);
  decode.Expect(MakeKey(1), prefill.parts.incarnation, ours, 2);
  prefill.sender->Begin(MakeKey(1), decode.peer(), 20);
  AnnounceAll(prefill, MakeKey(1), blocks);
  prefill.sender->Seal(MakeKey(1), TestSeal(theirs, kBlockTokens));
  EXPECT_EQ(decode.events.Await(MakeKey(1)).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(prefill.events.Await(MakeKey(1)).code(), absl::StatusCode::kDataLoss);
  prefill.parts.pool.Release(blocks);
}

TEST_P(LinkTest, IncompatibleWorkersAreRefusedByName) {
  PrefillSide prefill(8, SenderOptions(), &registry_);
  kernels::KvLayout other = kTestLayout;
  other.block_tokens = 32;
  DecodeSide decode(8, {}, &registry_, other);
  prefill.sender->Begin(MakeKey(1), decode.peer(), 20);
  const absl::Status status = prefill.events.Await(MakeKey(1));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("block_tokens is 32 here and 16"));
}

TEST_P(LinkTest, AnotherIncarnationIsUnavailable) {
  PrefillSide prefill(8, SenderOptions(), &registry_);
  DecodeSide decode(8, {}, &registry_);
  prefill.sender->Begin(MakeKey(1), {decode.server->address(), base::Id128::Random()}, 20);
  EXPECT_EQ(prefill.events.Await(MakeKey(1)).code(), absl::StatusCode::kUnavailable);
  prefill.sender->Begin(MakeKey(2), {"127.0.0.1:1", base::Id128::Random()}, 20);
  EXPECT_EQ(prefill.events.Await(MakeKey(2)).code(), absl::StatusCode::kUnavailable);
}

TEST_P(LinkTest, DeadlineOfTheRequestEndsBothSides) {
  PrefillSide prefill(8, SenderOptions(), &registry_);
  DecodeSide decode(8, {}, &registry_);
  decode.Expect(MakeKey(1), prefill.parts.incarnation, TestTokens(20, 1), 2,
                absl::Now() + absl::Milliseconds(100));
  prefill.sender->Begin(MakeKey(1), decode.peer(), 20);
  EXPECT_EQ(decode.events.Await(MakeKey(1)).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(prefill.events.Await(MakeKey(1)).code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_P(LinkTest, EachSideMayStopInTheMiddle) {
  const std::vector<uint32_t> tokens = TestTokens(40, 1);
  DecodeSide decode(8, {}, &registry_);
  {
    PrefillSide prefill(8, SenderOptions(), &registry_);
    const std::vector<KvBlockId> blocks = prefill.Write(3, 1);
    decode.Expect(MakeKey(1), prefill.parts.incarnation, tokens, 3);
    prefill.sender->Begin(MakeKey(1), decode.peer(), 40);
    AnnounceAll(prefill, MakeKey(1), absl::MakeSpan(blocks).first(2));
    while (prefill.sender->pins().oldest_age == std::nullopt) std::this_thread::yield();
    prefill.sender.reset();
    EXPECT_FALSE(prefill.events.Await(MakeKey(1)).ok());
    prefill.parts.pool.Release(blocks);
  }
  // Whether the link was up by then or not, the router would cancel what it knows to be dead.
  if (!decode.receiver->Cancel(MakeKey(1))) {
    EXPECT_FALSE(decode.events.Await(MakeKey(1)).ok());
  }
  PrefillSide prefill(8, SenderOptions(), &registry_);
  decode.Expect(MakeKey(2), prefill.parts.incarnation, tokens, 3);
  prefill.sender->Begin(MakeKey(2), decode.peer(), 40);
  decode.receiver->Shutdown();
  EXPECT_EQ(decode.events.Await(MakeKey(2)).code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(prefill.events.Await(MakeKey(2)).ok());
  decode.Expect(MakeKey(3), prefill.parts.incarnation, tokens, 3);
  EXPECT_EQ(decode.events.Await(MakeKey(3)).code(), absl::StatusCode::kUnavailable);
}

// A decode worker restarts on the same port: the next hand-off dials again.
TEST_P(LinkTest, RedialsAfterALoss) {
  PrefillSide prefill(8, SenderOptions(), &registry_);
  const std::vector<uint32_t> tokens = TestTokens(10, 1);
  const std::vector<KvBlockId> blocks = prefill.Write(1, 1);
  uint16_t port = 0;
  for (uint64_t life = 1; life <= 3; ++life) {
    SCOPED_TRACE(testing::Message() << "life " << life);
    DecodeSide decode(8, {}, &registry_);
    if (port != 0) {
      decode.server->Stop(absl::ZeroDuration());
      decode.StartServer(port);
    }
    port = decode.server->port();
    const HandoffKey key = MakeKey(life);
    decode.Expect(key, prefill.parts.incarnation, tokens, 1);
    prefill.sender->Begin(key, decode.peer(), 10);
    AnnounceAll(prefill, key, blocks);
    prefill.sender->Seal(key, TestSeal(tokens, kBlockTokens));
    ASSERT_EQ(prefill.events.Await(key), absl::OkStatus());
    ASSERT_EQ(decode.events.Await(key), absl::OkStatus());
    decode.Free(decode.events.TakeReceived(key));
  }
  prefill.parts.pool.Release(blocks);
}

#ifdef BATON_PLANTED_FAULTS
TEST_P(LinkTest, APlantedFaultIsSeen) {
  PrefillSide prefill(8, SenderOptions(), &registry_);
  LinkReceiverOptions options;
  options.planted_fault = PlantedFault::kStaleBlock;
  DecodeSide decode(8, options, &registry_);
  const std::vector<uint32_t> tokens = TestTokens(40, 1);
  const std::vector<KvBlockId> blocks = prefill.Write(3, 1);
  decode.Expect(MakeKey(1), prefill.parts.incarnation, tokens, 3);
  prefill.sender->Begin(MakeKey(1), decode.peer(), 40);
  AnnounceAll(prefill, MakeKey(1), blocks);
  prefill.sender->Seal(MakeKey(1), TestSeal(tokens, kBlockTokens));
  ASSERT_EQ(decode.events.Await(MakeKey(1)), absl::OkStatus());
  const ReceivedHandoff received = decode.events.TakeReceived(MakeKey(1));
  EXPECT_FALSE(SameBytes(prefill.parts.arena->view(), blocks, decode.parts.arena->view(),
                         received.blocks));
  ASSERT_EQ(prefill.events.Await(MakeKey(1)), absl::OkStatus());
  prefill.parts.pool.Release(blocks);
  decode.Free(received);
}
#endif

INSTANTIATE_TEST_SUITE_P(Transports, LinkTest, testing::ValuesIn(kAllTransports),
                         [](const auto& info) { return std::string(Name(info.param)); });

// The source's preference counts, as far as the sink allows it.
TEST(LinkTransport, TheBestOneThatWorksIsTaken) {
  struct Case {
    const char* name;
    bool one_process;
    std::vector<TransportKind> allowed;
    const char* taken;
  };
  const Case cases[] = {
      {"loopback", true, {TransportKind::kGrpc, TransportKind::kShm, TransportKind::kLoopback},
       "loopback"},
      {"no registry", false, {TransportKind::kLoopback, TransportKind::kShm, TransportKind::kGrpc},
       "shm"},
      {"no shared memory", false, {TransportKind::kLoopback, TransportKind::kGrpc}, "grpc"},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(test.name);
    LoopbackRegistry registry;
    PrefillSide prefill(8, {}, &registry);
    LinkReceiverOptions options;
    options.transports = test.allowed;
    DecodeSide decode(8, options, test.one_process ? &registry : nullptr);
    decode.Expect(MakeKey(1), prefill.parts.incarnation, TestTokens(10, 1), 1);
    prefill.sender->Begin(MakeKey(1), decode.peer(), 10);
    prefill.sender->Abort(MakeKey(1), absl::OkStatus());
    EXPECT_EQ(decode.events.Await(MakeKey(1)).code(), absl::StatusCode::kCancelled);
    EXPECT_THAT(decode.parts.metrics.Text(),
                testing::HasSubstr(std::string("baton_handoff_links{side=\"sink\",transport=\"") +
                                   test.taken + "\"} 1"));
  }
}

TEST(LinkTransport, NoneThatWorksIsRefused) {
  LinkSenderOptions sender;
  sender.transports = {TransportKind::kShm};
  PrefillSide prefill(8, sender, nullptr);
  LinkReceiverOptions options;
  options.transports = {TransportKind::kGrpc};
  DecodeSide decode(8, options, nullptr);
  prefill.sender->Begin(MakeKey(1), decode.peer(), 10);
  const absl::Status status = prefill.events.Await(MakeKey(1));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("shm: not allowed here"));
}

}  // namespace
}  // namespace baton::kvstore
