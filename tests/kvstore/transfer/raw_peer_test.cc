// A LinkReceiver against a source that says what it likes: wrong checksums, malformed frames and messages, bytes for nobody.
// Whatever comes, the hand-off or the link ends with a code, and the next well-behaved source is served.
#include <deque>

#include "baton/v1/link_service.grpc.pb.h"
#include "gmock/gmock.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "kvstore/transfer/link_client.h"
#include "kvstore/transfer/link_codec.h"
#include "kvstore/transfer/range_frame.h"
#include "tests/kvstore/transfer/link_fixture.h"

namespace baton::kvstore {
namespace {

constexpr LinkId kLink{1};

// A source without a machine: it sends what the test says.
class RawSource final : public LinkClientEvents {
 public:
  explicit RawSource(const DecodeSide& decode) {
    const LinkHello hello = {.incarnation = incarnation,
                             .peer_incarnation = decode.parts.incarnation,
                             .compatibility = TestCompatibility(),
                             .transports = {TransportKind::kGrpc},
                             .link_id = link_id};
    client = LinkClient::Open(kLink, base::OpenChannel(decode.server->address()), hello, *this);
    base::MutexLock lock(mutex_);
    while (!greeted_ && ended_.ok()) changed_.Wait(mutex_);
    CHECK_OK(ended_);
    client->StartPushing();
    client->StartReading();
  }

  ~RawSource() override {
    client->Cancel();
    AwaitEnd().IgnoreError();
  }

  // The next reply.
  SinkMessage Await() {
    base::MutexLock lock(mutex_);
    while (replies_.empty() && ended_.ok()) changed_.Wait(mutex_);
    CHECK(!replies_.empty()) << ended_;
    const SinkMessage reply = replies_.front();
    replies_.pop_front();
    return reply;
  }

  absl::Status AwaitEnd() {
    base::MutexLock lock(mutex_);
    while (ended_.ok()) changed_.Wait(mutex_);
    return ended_;
  }

  void Push(const std::string& bytes) {
    const grpc::Slice slice(bytes);
    client->Push(grpc::ByteBuffer(&slice, 1));
  }

  void PushPiece(const PushedBytes& pushed) {
    const auto header = EncodeFrameHeader({link_id, pushed});
    Push(std::string(header.data(), header.size()) + std::string(pushed.bytes, 'x'));
  }

  const base::Id128 incarnation = base::Id128::Random();
  const base::Id128 link_id = base::Id128::Random();
  std::unique_ptr<LinkClient> client;

 private:
  void OnHelloReply(LinkId, const LinkHelloReply&) override {
    base::MutexLock lock(mutex_);
    greeted_ = true;
    changed_.NotifyAll();
  }
  void OnMessage(LinkId, const SinkMessage& message) override {
    {
      base::MutexLock lock(mutex_);
      replies_.push_back(message);
      changed_.NotifyAll();
    }
    client->ReadNext();
  }
  void OnFrameWritten(LinkId) override {}
  void OnLinkEnded(LinkId, const absl::Status& status) override {
    base::MutexLock lock(mutex_);
    ended_ = status;
    changed_.NotifyAll();
  }

  base::Mutex mutex_;
  base::CondVar changed_;
  bool greeted_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);
  std::deque<SinkMessage> replies_ ABSL_GUARDED_BY(mutex_);
};

class RawPeerTest : public testing::Test {
 protected:
  // Expects a prompt of 40 tokens, and has it accepted.
  void Offer(RawSource& source, const HandoffKey& key) {
    decode_.Expect(key, source.incarnation, TestTokens(40, 1), 3);
    source.client->Send(OfferHandoff{key, 40});
    ASSERT_TRUE(std::holds_alternative<AcceptHandoff>(source.Await()));
  }

  static AnnounceRange Range(const HandoffKey& key, uint64_t checksum) {
    return {.key = key, .layer = 0, .first_block = 0, .blocks = {{KvBlockId{0}, 1}},
            .checksum = checksum};
  }

  static PushedBytes Piece(const HandoffKey& key, uint64_t bytes) {
    return {.key = key, .block_count = 1, .bytes = bytes};
  }

  void ExpectServesOthers() {
    PrefillSide prefill(4, {}, nullptr);
    const HandoffKey key = MakeKey(99);
    const std::vector<uint32_t> tokens = TestTokens(10, 1);
    const std::vector<KvBlockId> blocks = prefill.Write(1, 1);
    decode_.Expect(key, prefill.parts.incarnation, tokens, 1);
    prefill.sender->Begin(key, decode_.peer(), 10);
    for (uint32_t layer = 0; layer < kTestLayout.layers; ++layer) {
      prefill.sender->Announce(key, layer, 0, blocks);
    }
    prefill.sender->Seal(key, TestSeal(tokens, kTestLayout.block_tokens));
    EXPECT_EQ(decode_.events.Await(key), absl::OkStatus());
    EXPECT_EQ(prefill.events.Await(key), absl::OkStatus());
    decode_.Free(decode_.events.TakeReceived(key));
    prefill.parts.pool.Release(blocks);
    EXPECT_EQ(decode_.parts.pool.counts().held, 0u);
    EXPECT_EQ(decode_.parts.pool.counts().reserved, 0u);
  }

  DecodeSide decode_{8, {}, nullptr};
};

TEST_F(RawPeerTest, AWrongChecksumIsDataLoss) {
  RawSource source(decode_);
  Offer(source, MakeKey(1));
  source.client->Send(Range(MakeKey(1), 12345));
  source.PushPiece(Piece(MakeKey(1), kTestLayout.layer_block_bytes()));
  const SinkMessage reply = source.Await();
  ASSERT_TRUE(std::holds_alternative<RefuseHandoff>(reply));
  EXPECT_EQ(std::get<RefuseHandoff>(reply).reason.code(), absl::StatusCode::kDataLoss);
  const absl::Status status = decode_.events.Await(MakeKey(1));
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("checksum of range 0"));
  ExpectServesOthers();
}

// The same bytes without a checksum are taken: it was the checksum that was refused above.
TEST_F(RawPeerTest, NoChecksumIsTaken) {
  RawSource source(decode_);
  Offer(source, MakeKey(1));
  source.client->Send(Range(MakeKey(1), 0));
  source.PushPiece(Piece(MakeKey(1), kTestLayout.layer_block_bytes()));
  EXPECT_TRUE(std::holds_alternative<AcknowledgeRange>(source.Await()));
  EXPECT_TRUE(decode_.receiver->Cancel(MakeKey(1)));
}

TEST_F(RawPeerTest, ARangeOutsideThePromptFailsThatHandoffOnly) {
  RawSource source(decode_);
  Offer(source, MakeKey(1));
  Offer(source, MakeKey(2));
  AnnounceRange outside = Range(MakeKey(1), 0);
  outside.layer = kTestLayout.layers;
  source.client->Send(outside);
  const SinkMessage reply = source.Await();
  ASSERT_TRUE(std::holds_alternative<RefuseHandoff>(reply));
  EXPECT_EQ(std::get<RefuseHandoff>(reply).reason.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(decode_.events.Await(MakeKey(1)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(decode_.receiver->Cancel(MakeKey(2)));
}

TEST_F(RawPeerTest, AMalformedFrameEndsTheLink) {
  const std::string frames[] = {"", "short", std::string(64, '\0'), std::string(200, 'x')};
  for (const std::string& frame : frames) {
    SCOPED_TRACE(testing::Message() << frame.size() << " bytes");
    RawSource source(decode_);
    source.Push(frame);
    EXPECT_EQ(source.AwaitEnd().code(), absl::StatusCode::kDataLoss);
  }
  ExpectServesOthers();
}

TEST_F(RawPeerTest, BytesForNobodyAreDropped) {
  RawSource source(decode_);
  source.PushPiece(Piece(MakeKey(77), 100));
  Offer(source, MakeKey(1));  // The link lives.
  EXPECT_TRUE(decode_.receiver->Cancel(MakeKey(1)));
}

TEST_F(RawPeerTest, BytesForAnotherLinkAreRefused) {
  RawSource source(decode_);
  const auto header =
      EncodeFrameHeader({base::Id128::Random(), Piece(MakeKey(1), 1)});
  source.Push(std::string(header.data(), header.size()) + "x");
  EXPECT_EQ(source.AwaitEnd().code(), absl::StatusCode::kNotFound);
}

// Messages that no LinkClient would send, written with the generated stub.
TEST_F(RawPeerTest, MalformedMessagesEndTheLinkByName) {
  LinkHello hello = {.incarnation = base::Id128::Random(),
                     .peer_incarnation = decode_.parts.incarnation,
                     .compatibility = TestCompatibility(),
                     .transports = {TransportKind::kGrpc},
                     .link_id = base::Id128::Random()};
  struct Case {
    const char* message;
    v1::OpenLinkRequest first;
    v1::OpenLinkRequest second;
  };
  std::vector<Case> cases;
  cases.push_back({"the first message is not hello", ToProto(SourceMessage(Heartbeat{})), {}});
  cases.push_back({"hello came twice", ToProto(hello), ToProto(hello)});
  cases.push_back({"empty or unknown", ToProto(hello), {}});
  cases.push_back({"hello.incarnation has 3 bytes, must have 16", ToProto(hello), {}});
  cases.back().first.mutable_hello()->set_incarnation("abc");
  cases.push_back({"block_tokens is 7", ToProto(hello), {}});
  cases.back().first.mutable_hello()->mutable_compatibility()->mutable_layout()->set_block_tokens(7);
  cases.push_back({"key.attempt is 0", ToProto(hello),
                   ToProto(SourceMessage(OfferHandoff{MakeKey(1, 0), 1}))});
  cases.push_back({"announce.block_ids is 0", ToProto(hello),
                   ToProto(SourceMessage(AnnounceRange{.key = MakeKey(1)}))});
  cases.push_back({"announce.generations is 2, must be in [1, 1]", ToProto(hello),
                   ToProto(SourceMessage(Range(MakeKey(1), 0)))});
  cases.back().second.mutable_announce()->add_generations(1);
  cases.push_back({"seal.last_block_digest has 5 bytes", ToProto(hello),
                   ToProto(SourceMessage(SealHandoff{
                       .key = MakeKey(1), .info = {.last_block_digest = "12345"}}))});

  const auto channel = base::OpenChannel(decode_.server->address());
  const auto stub = v1::LinkService::NewStub(channel);
  for (const Case& test : cases) {
    SCOPED_TRACE(test.message);
    grpc::ClientContext context;
    const auto stream = stub->OpenLink(&context);
    stream->Write(test.first);
    stream->Write(test.second);
    v1::OpenLinkResponse response;
    while (stream->Read(&response)) {
    }
    const grpc::Status status = stream->Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
    EXPECT_THAT(status.error_message(), testing::HasSubstr(test.message));
  }
  ExpectServesOthers();
}

TEST_F(RawPeerTest, AnotherKvOrderOrSplitIsIncompatible) {
  LinkHello hello = {.incarnation = base::Id128::Random(),
                     .peer_incarnation = decode_.parts.incarnation,
                     .compatibility = TestCompatibility(),
                     .transports = {TransportKind::kGrpc},
                     .link_id = base::Id128::Random()};
  v1::OpenLinkRequest order = ToProto(hello), split = ToProto(hello);
  order.mutable_hello()->mutable_compatibility()->mutable_layout()->set_order("another");
  split.mutable_hello()->mutable_compatibility()->mutable_layout()->set_tensor_parallel_size(2);
  const auto stub = v1::LinkService::NewStub(base::OpenChannel(decode_.server->address()));
  for (const v1::OpenLinkRequest& request : {order, split}) {
    grpc::ClientContext context;
    const auto stream = stub->OpenLink(&context);
    stream->Write(request);
    v1::OpenLinkResponse response;
    EXPECT_FALSE(stream->Read(&response));
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  }
}

// Everything a source says survives the wire.
TEST(LinkCodec, ComesBackAsItWas) {
  const SealInfo info = {.tokens = 9,
                         .last_block_digest = std::string(32, 'd'),
                         .first_tokens = {{.sample_index = 1, .token = 2},
                                          {.sample_index = 2, .token = 3, .logprob = -1.5f,
                                           .top = {{3, -1.5f}, {4, -2.0f}}}}};
  const auto seal = SourceMessageFromProto(
      ToProto(SourceMessage(SealHandoff{.key = MakeKey(1), .range_count = 7, .info = info})));
  ASSERT_TRUE(seal.ok()) << seal.status();
  EXPECT_EQ(std::get<SealHandoff>(*seal).info.first_tokens, info.first_tokens);
  EXPECT_EQ(std::get<SealHandoff>(*seal).info.last_block_digest, info.last_block_digest);
  EXPECT_EQ(std::get<SealHandoff>(*seal).range_count, 7u);

  const AnnounceRange range = {.key = MakeKey(1), .range_index = 2, .layer = 3, .first_block = 4,
                               .blocks = {{KvBlockId{5}, 6}, {KvBlockId{7}, uint64_t{1} << 60}},
                               .checksum = 8};
  const auto announced = SourceMessageFromProto(ToProto(SourceMessage(range)));
  ASSERT_TRUE(announced.ok()) << announced.status();
  EXPECT_EQ(std::get<AnnounceRange>(*announced).blocks, range.blocks);
  EXPECT_EQ(std::get<AnnounceRange>(*announced).checksum, 8u);

  const auto refused = SinkMessageFromProto(
      ToProto(SinkMessage(RefuseHandoff{MakeKey(1), absl::NotFoundError("none")})));
  ASSERT_TRUE(refused.ok()) << refused.status();
  EXPECT_EQ(std::get<RefuseHandoff>(*refused).reason, absl::NotFoundError("none"));

  v1::OpenLinkRequest strange = ToProto(SourceMessage(AbortHandoff{MakeKey(1), {}}));
  strange.mutable_abort()->set_code(4711);
  const auto aborted = SourceMessageFromProto(strange);
  ASSERT_TRUE(aborted.ok());
  EXPECT_EQ(std::get<AbortHandoff>(*aborted).reason.code(), absl::StatusCode::kUnknown);
}

}  // namespace
}  // namespace baton::kvstore
