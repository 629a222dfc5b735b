// A batch of sequences on paged KV for the tests of rope_append and attention: blocks are dealt in a shuffled order, and a
// value depends on (sequence, position, head, dim) only, so that two batches with different blocks hold the same content.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/kv_layout.h"
#include "kernels/kv_rows.h"
#include "kernels/tensor_view.h"

namespace baton::kernels {

// In (-1, 1), a hash of its arguments.
inline float ContentAt(uint32_t stream, uint32_t sequence, uint32_t position, uint32_t index) {
  uint64_t x = (uint64_t{stream} << 48) ^ (uint64_t{sequence} << 40) ^ (uint64_t{position} << 16) ^ index;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  x ^= x >> 31;
  return static_cast<float>(static_cast<int32_t>(x >> 40)) * 0x1p-23f - 1.0f;
}

inline void StoreElement(uint8_t* at, KvType type, float value) {
  if (type == KvType::kF32) {
    std::memcpy(at, &value, 4);
    return;
  }
  const uint16_t bits = type == KvType::kF16 ? FloatToHalf(value) : FloatToBf16(value);
  std::memcpy(at, &bits, 2);
}

inline float LoadElement(const uint8_t* at, KvType type) {
  if (type == KvType::kF32) {
    float value;
    std::memcpy(&value, at, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, at, 2);
  return type == KvType::kF16 ? HalfToFloat(bits) : Bf16ToFloat(bits);
}

class PagedBatch {
 public:
  // `lengths` are the positions that each sequence has room for. Its blocks are full of large finite numbers at first, what
  // nobody owns is full of NaN.
  PagedBatch(const KvLayout& layout, const std::vector<uint32_t>& lengths, uint32_t seed)
      : layout_(layout), blocks_(lengths.size()) {
    uint32_t block_count = 1;  // A block that nobody owns.
    for (const uint32_t length : lengths) block_count += BlocksFor(length);
    std::vector<uint32_t> order(block_count);
    for (uint32_t i = 0; i < block_count; ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), std::mt19937(seed));
    uint32_t next = 0;
    for (size_t s = 0; s < lengths.size(); ++s) {
      for (uint32_t i = 0; i < BlocksFor(lengths[s]); ++i) blocks_[s].push_back(order[next++]);
    }
    bytes_.assign(layout.block_bytes() * block_count + 64, 0xff);
    const auto address = reinterpret_cast<uintptr_t>(bytes_.data());
    view_ = {.layout = layout, .block_count = block_count, .base = bytes_.data() + (64 - address % 64) % 64};
    for (const std::vector<uint32_t>& table : blocks_) {
      for (const uint32_t block : table) {
        for (uint32_t layer = 0; layer < layout.layers; ++layer) {
          std::memset(view_.LayerBlock(layer, block), 0x47, layout.layer_block_bytes());
        }
      }
    }
  }

  const PagedKvView& view() const { return view_; }
  const std::vector<uint32_t>& blocks(size_t sequence) const { return blocks_[sequence]; }
  const std::vector<uint8_t>& bytes() const { return bytes_; }
  // Bytes of an element of K or V of one position.
  uint8_t* KElement(size_t sequence, uint32_t layer, uint32_t position, uint32_t head, uint32_t dim) const {
    const uint32_t block = blocks_[sequence][position / layout_.block_tokens];
    return view_.K(layer, block, head) +
           KIndex(layout_, position % layout_.block_tokens, dim) * layout_.element_bytes();
  }
  uint8_t* VElement(size_t sequence, uint32_t layer, uint32_t position, uint32_t head, uint32_t dim) const {
    const uint32_t block = blocks_[sequence][position / layout_.block_tokens];
    return view_.V(layer, block, head) +
           VIndex(layout_, position % layout_.block_tokens, dim) * layout_.element_bytes();
  }

  SequenceRows Rows(size_t sequence, uint32_t start, uint32_t count) const {
    return {.blocks = blocks_[sequence], .start_position = start, .row_count = count};
  }

  // Writes K and V of positions [begin, end); `identity` names the content.
  void Fill(size_t sequence, uint32_t identity, uint32_t layer, uint32_t begin, uint32_t end, float k_scale) {
    for (uint32_t position = begin; position < end; ++position) {
      for (uint32_t head = 0; head < layout_.kv_heads; ++head) {
        for (uint32_t dim = 0; dim < layout_.head_dim; ++dim) {
          const uint32_t index = head * layout_.head_dim + dim;
          StoreElement(KElement(sequence, layer, position, head, dim), layout_.type,
                       k_scale * ContentAt(1, identity, position, index));
          StoreElement(VElement(sequence, layer, position, head, dim), layout_.type,
                       ContentAt(2, identity, position, index));
        }
      }
    }
  }

 private:
  uint32_t BlocksFor(uint32_t tokens) const {
    return (tokens + layout_.block_tokens - 1) / layout_.block_tokens;
  }

  KvLayout layout_;
  std::vector<std::vector<uint32_t>> blocks_;
  std::vector<uint8_t> bytes_;
  PagedKvView view_;
};

}  // namespace baton::kernels
