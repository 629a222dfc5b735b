// The rows of a batch that belong to one sequence: consecutive positions, as the ops on paged KV see them.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/kv_layout.h"

namespace baton::kernels {

struct SequenceRows {
  absl::Span<const uint32_t> blocks;  // Block table; covers positions [0, start_position + row_count).
  uint32_t start_position = 0;
  uint32_t row_count = 0;  // >= 1.
};

// CHECKs that every table covers its rows with blocks inside the view; returns the rows of all sequences together.
uint32_t CheckRows(absl::Span<const SequenceRows> sequences, const PagedKvView& kv);

}  // namespace baton::kernels
