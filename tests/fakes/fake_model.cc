#include "tests/fakes/fake_model.h"

#include <bit>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/check.h"

namespace baton::fakes {
namespace {

// Above any other logit, so that a forced token is drawn at any sane temperature; the rest of the
// row still tells the prefix.
constexpr float kForcedLogit = 1000.0f;

// The finaliser of splitmix64: each bit of the input moves half of the output.
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t Fold(uint64_t state, uint64_t value) { return Mix(state ^ Mix(value)); }

uint64_t FoldBits(uint64_t state, const uint8_t* slot) {
  uint32_t bits;
  std::memcpy(&bits, slot, sizeof(bits));
  return Fold(state, bits);
}

// A finite float made of a hash: exponents of 1.0 to 2.0, any mantissa, any sign.
uint32_t FiniteBits(uint64_t hash) {
  return (static_cast<uint32_t>(hash) & 0x807fffffu) | 0x3f800000u;
}

// One token's slots in one layer, in the F32 layout of kv_layout.h.
class TokenSlots {
 public:
  TokenSlots(const kernels::PagedKvView& kv, uint32_t layer, absl::Span<const uint32_t> blocks,
             uint32_t position)
      : kv_(kv),
        layer_(layer),
        block_(blocks[position / kv.layout.block_tokens]),
        slot_(position % kv.layout.block_tokens) {}

  void Write(uint64_t hash) const {
    ForEach([&hash](uint8_t* slot) {
      hash = Mix(hash);
      const uint32_t bits = FiniteBits(hash);
      std::memcpy(slot, &bits, sizeof(bits));
    });
  }

  uint64_t FoldInto(uint64_t state) const {
    ForEach([&state](uint8_t* slot) { state = FoldBits(state, slot); });
    return state;
  }

 private:
  template <typename Visit>
  void ForEach(Visit visit) const {
    const uint32_t head_dim = kv_.layout.head_dim;
    const uint32_t block_tokens = kv_.layout.block_tokens;
    for (uint32_t head = 0; head < kv_.layout.kv_heads; ++head) {
      uint8_t* k = kv_.K(layer_, block_, head);
      uint8_t* v = kv_.V(layer_, block_, head);
      for (uint32_t d = 0; d < head_dim; ++d) {
        visit(k + (d * block_tokens + slot_) * sizeof(float));
        visit(v + (slot_ * head_dim + d) * sizeof(float));
      }
    }
  }

  const kernels::PagedKvView& kv_;
  uint32_t layer_;
  uint32_t block_;
  uint32_t slot_;
};

// Sleeps towards the end of each layer's share of the step.
class Pace {
 public:
  Pace(absl::Duration step, uint32_t layers)
      : start_(std::chrono::steady_clock::now()), layer_(step / layers) {}

  void EndLayer(uint32_t layer) const {
    if (layer_ <= absl::ZeroDuration()) return;
    std::this_thread::sleep_until(start_ + absl::ToChronoNanoseconds((layer + 1) * layer_));
  }

 private:
  std::chrono::steady_clock::time_point start_;
  absl::Duration layer_;
};

std::string DigestOf(uint64_t seed) {
  std::string digest(32, '\0');
  for (size_t i = 0; i < digest.size(); ++i) digest[i] = static_cast<char>(Fold(seed, i));
  return digest;
}

}  // namespace

FakeModel::FakeModel(FakeModelOptions options) : options_(std::move(options)) {
  CHECK(options_.vocabulary_size > 0);
  CHECK(options_.batch_rows_max > 0);
  CHECK_OK(Validate(kv_layout()));
  for (uint32_t token : options_.script) CHECK_LT(token, options_.vocabulary_size);
  for (const ForcedToken& forced : options_.forced) {
    CHECK_LT(forced.token, options_.vocabulary_size);
  }
  info_ = {.name = options_.name,
           .architecture = "fake",
           .digest = options_.digest.empty() ? DigestOf(options_.seed) : options_.digest,
           .vocabulary_size = options_.vocabulary_size,
           .context_tokens = options_.context_tokens,
           .layers = options_.layers,
           .kv_heads = options_.kv_heads,
           .head_dim = options_.head_dim,
           .f32_weights = true};
}

kernels::KvLayout FakeModel::kv_layout() const {
  return {.layers = options_.layers,
          .kv_heads = options_.kv_heads,
          .head_dim = options_.head_dim,
          .block_tokens = options_.block_tokens,
          .type = kernels::KvType::kF32};
}

void FakeModel::Forward(const model::ForwardBatch& batch, const kernels::PagedKvView& kv,
                        model::LayerObserver* observer, absl::Span<float> logits) {
  CheckBatch(batch, kv, logits);
  const Pace pace(options_.step_time + batch.tokens.size() * options_.row_time, options_.layers);

  std::vector<Row> rows;
  rows.reserve(batch.tokens.size());
  for (const model::ForwardSequence& sequence : batch.sequences) {
    for (uint32_t i = 0; i < sequence.token_count; ++i) {
      rows.push_back({.token = batch.tokens[rows.size()],
                      .position = sequence.start_position + i,
                      .hidden = options_.seed});
    }
  }

  for (uint32_t layer = 0; layer < options_.layers; ++layer) {
    absl::Span<Row> rest = absl::MakeSpan(rows);
    for (const model::ForwardSequence& sequence : batch.sequences) {
      RunLayer(layer, sequence, kv, rest.first(sequence.token_count));
      rest.remove_prefix(sequence.token_count);
    }
    pace.EndLayer(layer);
    if (observer != nullptr) observer->OnLayerWritten(layer);
  }

  absl::Span<const Row> rest = rows;
  for (const model::ForwardSequence& sequence : batch.sequences) {
    const absl::Span<const Row> own = rest.first(sequence.token_count);
    for (const Row& row : own.last(sequence.logit_rows)) {
      WriteLogits(row, logits.first(options_.vocabulary_size));
      logits.remove_prefix(options_.vocabulary_size);
    }
    rest.remove_prefix(sequence.token_count);
  }
}

void FakeModel::CheckBatch(const model::ForwardBatch& batch, const kernels::PagedKvView& kv,
                           absl::Span<float> logits) const {
  CHECK(kv.layout == kv_layout());
  CHECK(!batch.tokens.empty());
  CHECK_LE(batch.tokens.size(), options_.batch_rows_max);
  for (uint32_t token : batch.tokens) CHECK_LT(token, options_.vocabulary_size);
  size_t row_count = 0;
  size_t logit_row_count = 0;
  for (const model::ForwardSequence& sequence : batch.sequences) {
    CHECK(sequence.token_count > 0);
    CHECK_LE(sequence.logit_rows, sequence.token_count);
    const size_t end = size_t{sequence.start_position} + sequence.token_count;
    CHECK_LE(end, options_.context_tokens);
    CHECK_LE(end, sequence.blocks.size() * kv.layout.block_tokens);
    for (uint32_t block : sequence.blocks) CHECK_LT(block, kv.block_count);
    row_count += sequence.token_count;
    logit_row_count += sequence.logit_rows;
  }
  CHECK_EQ(row_count, batch.tokens.size());
  CHECK_EQ(logit_row_count * options_.vocabulary_size, logits.size());
}

void FakeModel::RunLayer(uint32_t layer, const model::ForwardSequence& sequence,
                         const kernels::PagedKvView& kv, absl::Span<Row> rows) const {
  uint64_t prefix = options_.seed;
  for (uint32_t position = 0; position < sequence.start_position; ++position) {
    prefix = TokenSlots(kv, layer, sequence.blocks, position).FoldInto(prefix);
  }
  for (Row& row : rows) {
    const TokenSlots slots(kv, layer, sequence.blocks, row.position);
    const uint64_t place = uint64_t{row.position} << 32 | row.token;
    slots.Write(Fold(Fold(Fold(prefix, place), layer), row.hidden));
    prefix = slots.FoldInto(prefix);
    row.hidden = Fold(row.hidden, prefix);
  }
}

void FakeModel::WriteLogits(const Row& row, absl::Span<float> logits) const {
  for (uint32_t token = 0; token < logits.size(); ++token) {
    // 24 bits make an exact float in [-8, 8).
    logits[token] = static_cast<float>(Fold(row.hidden, token) >> 40) * 0x1p-20f - 8.0f;
  }
  const uint32_t next = row.position + 1;
  for (const ForcedToken& forced : options_.forced) {
    if (forced.position == next) {
      logits[forced.token] = kForcedLogit;
      return;
    }
  }
  if (!options_.script.empty())
    logits[options_.script[next % options_.script.size()]] = kForcedLogit;
}

}  // namespace baton::fakes
