// What peer_loss_test.cc and the process that it kills agree on.
#pragma once

#include <vector>

#include "tests/kvstore/transfer/link_fixture.h"

namespace baton::kvstore {

// 256 KiB a block: a hand-off of 64 blocks is 16 MiB, so that a transfer has a middle.
inline constexpr kernels::KvLayout kPeerLayout = {
    .layers = 16, .kv_heads = 4, .head_dim = 64, .block_tokens = 16};
inline constexpr uint32_t kPeerHandoffs = 3;
inline constexpr uint32_t kPeerHandoffBlocks = 64;
inline constexpr uint32_t kPeerBlocks = kPeerHandoffs * kPeerHandoffBlocks;

inline std::vector<uint32_t> PeerTokens(uint32_t handoff) {
  return TestTokens(kPeerHandoffBlocks * kPeerLayout.block_tokens, handoff);
}

// Begins all hand-offs and announces all of their blocks, but seals none: they end when one side gives up.
inline std::vector<KvBlockId> BeginAll(PrefillSide& prefill, const HandoffPeer& peer) {
  std::vector<KvBlockId> all;
  for (uint32_t i = 0; i < kPeerHandoffs; ++i) {
    const std::vector<KvBlockId> blocks = prefill.Write(kPeerHandoffBlocks, i);
    prefill.sender->Begin(MakeKey(i), peer, kPeerHandoffBlocks * kPeerLayout.block_tokens);
    for (uint32_t layer = 0; layer < kPeerLayout.layers; ++layer) {
      prefill.sender->Announce(MakeKey(i), layer, 0, blocks);
    }
    all.insert(all.end(), blocks.begin(), blocks.end());
  }
  return all;
}

}  // namespace baton::kvstore
