#include "kvstore/transfer/shm_transport.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "base/check.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton::kvstore {
namespace {

constexpr kernels::KvLayout kLayout = {.layers = 2, .kv_heads = 1, .head_dim = 16, .block_tokens = 8};
constexpr absl::Duration kTimeout = absl::Seconds(10);

struct Arena {
  std::unique_ptr<KvArena> arena = *KvArena::Create(kLayout, 4);
  KvBlockPool pool{4, arena->generations()};

  KvBlockRef Take(uint8_t fill) {
    KvBlockId id;
    CHECK_OK(pool.Allocate({&id, 1}));
    for (uint32_t layer = 0; layer < kLayout.layers; ++layer) {
      memset(arena->view().LayerBlock(layer, static_cast<uint32_t>(id)), fill + layer,
             kLayout.layer_block_bytes());
    }
    return {id, pool.generation(id)};
  }
};

TEST(ShmTransport, CopiesBlocksOutOfThePeersArena) {
  Arena source, sink;
  const auto listener = *ShmListener::Start(*source.arena);
  const auto reader = ConnectShm(listener->Offer(), kLayout, kTimeout);
  ASSERT_TRUE(reader.ok()) << reader.status();
  const KvBlockRef a = source.Take(10), b = source.Take(20);
  const KvBlockId to[] = {KvBlockId{3}, KvBlockId{1}};
  const AnnounceRange range = {.layer = 1, .blocks = {a, b}};
  ASSERT_EQ((*reader)->Read(range, sink.arena->view(), to), absl::OkStatus());
  EXPECT_EQ(*sink.arena->view().LayerBlock(1, 3), 11);
  EXPECT_EQ(*sink.arena->view().LayerBlock(1, 1), 21);
  EXPECT_EQ(*sink.arena->view().LayerBlock(0, 3), 0);
  const KvBlockId taken[] = {a.id, b.id};
  EXPECT_EQ(RangeChecksum(source.arena->view(), 1, taken), RangeChecksum(sink.arena->view(), 1, to));
  EXPECT_NE(RangeChecksum(source.arena->view(), 0, taken), RangeChecksum(sink.arena->view(), 1, to));
  source.pool.Release(taken);
}

TEST(ShmTransport, ABlockWithAnotherOwnerIsUnavailable) {
  Arena source, sink;
  const auto listener = *ShmListener::Start(*source.arena);
  const auto reader = *ConnectShm(listener->Offer(), kLayout, kTimeout);
  const KvBlockRef block = source.Take(1);
  const AnnounceRange range = {.layer = 0, .blocks = {block}};
  const KvBlockId to[] = {KvBlockId{0}};
  EXPECT_TRUE(reader->Read(range, sink.arena->view(), to).ok());
  source.pool.Release(block.id);
  EXPECT_EQ(reader->Read(range, sink.arena->view(), to).code(), absl::StatusCode::kUnavailable);
  ASSERT_EQ(source.Take(2).id, block.id);
  EXPECT_EQ(reader->Read(range, sink.arena->view(), to).code(), absl::StatusCode::kUnavailable);
  source.pool.Release(block.id);
}

TEST(ShmTransport, ABlockThatIsNotThereIsInvalid) {
  Arena source, sink;
  const auto listener = *ShmListener::Start(*source.arena);
  const auto reader = *ConnectShm(listener->Offer(), kLayout, kTimeout);
  const AnnounceRange range = {.layer = 0, .blocks = {{KvBlockId{4}, 1}}};
  const KvBlockId to[] = {KvBlockId{0}};
  const absl::Status status = reader->Read(range, sink.arena->view(), to);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "block id is 4, the source has 4");
}

TEST(ShmTransport, ANonceOpensOnce) {
  Arena source;
  const auto listener = *ShmListener::Start(*source.arena);
  const ShmOffer offer = listener->Offer(), forgotten = listener->Offer();
  EXPECT_TRUE(ConnectShm(offer, kLayout, kTimeout).ok());
  EXPECT_FALSE(ConnectShm(offer, kLayout, kTimeout).ok());
  listener->Forget(forgotten.nonce);
  EXPECT_FALSE(ConnectShm(forgotten, kLayout, kTimeout).ok());
  ShmOffer guessed = listener->Offer();
  guessed.nonce[0] ^= 1;
  EXPECT_FALSE(ConnectShm(guessed, kLayout, kTimeout).ok());
}

TEST(ShmTransport, RefusesWhatCannotBe) {
  Arena source;
  const auto listener = *ShmListener::Start(*source.arena);
  ShmOffer offer = listener->Offer();
  offer.boot_id = "another";
  EXPECT_EQ(ConnectShm(offer, kLayout, kTimeout).status().code(),
            absl::StatusCode::kFailedPrecondition);
  offer = listener->Offer();
  offer.arena_bytes += kLayout.block_bytes();
  EXPECT_EQ(ConnectShm(offer, kLayout, kTimeout).status().code(),
            absl::StatusCode::kFailedPrecondition);
  offer = listener->Offer();
  offer.arena_bytes -= 1;
  EXPECT_EQ(ConnectShm(offer, kLayout, kTimeout).status().code(),
            absl::StatusCode::kFailedPrecondition);
  offer.socket_name = "nobody-listens-here";
  EXPECT_EQ(ConnectShm(offer, kLayout, kTimeout).status().code(), absl::StatusCode::kUnavailable);
  offer.socket_name = std::string(200, 'x');
  EXPECT_EQ(ConnectShm(offer, kLayout, kTimeout).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace baton::kvstore
