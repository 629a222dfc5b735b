#include <algorithm>
#include <atomic>
#include <iterator>
#include <memory>
#include <vector>

#include "base/check.h"
#include "kernels/attention/attention_kernel.h"

namespace baton::kernels {
namespace {

// Rows that share a pass over the keys, so that a chunk is read from memory once for all of them.
constexpr uint32_t kTaskRows = 8 * kTileRows;

// A task is claimed whole by one thread: some rows of a sequence for one KV head. Rows are numbered token by token, and
// within a token by the heads that share the KV head.
struct Task {
  uint32_t sequence;
  uint32_t kv_head;
  uint32_t first_row;
  uint32_t row_count;  // <= kTaskRows
  uint32_t first_chunk;
  uint32_t chunk_count;
  int32_t split;  // Index into splits, or kNotSplit.
  uint64_t cost;  // Rows times keys.
};
constexpr int32_t kNotSplit = -1;

// The rows of one task that was cut along the keys: each piece leaves its partial, the last to finish merges them in order.
struct Split {
  uint32_t chunk_count;
  uint64_t partials_offset;  // [chunk_count][row_count] partials.
  std::atomic<uint32_t> pieces_left;
};

uint32_t ChunkCount(uint32_t keys) { return (keys + kChunkKeys - 1) / kChunkKeys; }

class AttentionRun {
 public:
  AttentionRun(const AttentionArgs& args, const AttentionKernel& kernel, KernelContext& context);

  void Run();

 private:
  // Memory of a thread for the task at hand.
  struct Scratch {
    const uint8_t** k_planes;  // [blocks of the task's keys]
    uint8_t* queries;          // [kTaskRows] packed
    float* states;             // [kTaskRows] states
    float* partials;           // [kTileRows] partials
    uint8_t* tile;             // kTileScratchBytes
  };

  void PlanTasks();
  void PlanSequence(uint32_t sequence, uint32_t row_count, bool few_tasks);
  Scratch TakeScratch(const Task& task, uint32_t thread);
  void RunTask(const Task& task, uint32_t thread);
  // Attends all rows of the task to one chunk; leaves partials in `out`, or merges them into it if `merge`.
  void AttendRows(const Task& task, uint32_t chunk, const Scratch& scratch, bool merge, float* out);
  void MergeSplit(const Task& task, float* states);
  void Finish(const Task& task, const float* states);

  float* SplitPartials(const Split& split) const {
    return reinterpret_cast<float*>(split_partials_.get()) + split.partials_offset;
  }
  const SequenceRows& RowsOf(const Task& task) const { return args_.sequences[task.sequence]; }
  // Keys that a row of the task sees.
  uint32_t LengthOf(const Task& task, uint32_t row) const {
    return RowsOf(task).start_position + (task.first_row + row) / group_ + 1;
  }
  // Where a row of the task begins in q or out: the row of the batch, then the element inside it.
  uint64_t Offset(const Task& task, uint32_t row, uint64_t stride) const {
    const uint32_t index = task.first_row + row;
    return (first_rows_[task.sequence] + index / group_) * stride +
           uint64_t{task.kv_head * group_ + index % group_} * layout_.head_dim;
  }

  const AttentionArgs& args_;
  const AttentionKernel& kernel_;
  KernelContext& context_;
  const KvLayout& layout_;
  const uint32_t group_;           // Query heads that share a KV head.
  const uint32_t partial_floats_;
  std::vector<uint64_t> first_rows_;  // Of each sequence in the batch.
  std::vector<Task> tasks_;
  std::vector<std::unique_ptr<Split>> splits_;
  uint64_t split_floats_ = 0;
  struct alignas(64) Line {
    float values[16];
  };
  std::unique_ptr<Line[]> split_partials_;
};

AttentionRun::AttentionRun(const AttentionArgs& args, const AttentionKernel& kernel,
                           KernelContext& context)
    : args_(args),
      kernel_(kernel),
      context_(context),
      layout_(args.kv.layout),
      group_(args.heads / args.kv.layout.kv_heads),
      partial_floats_(PartialFloats(args.kv.layout.head_dim)) {}

void AttentionRun::PlanSequence(uint32_t sequence, uint32_t row_count, bool few_tasks) {
  const uint32_t start = args_.sequences[sequence].start_position;
  // Later rows see more keys: they come first.
  for (uint32_t end = row_count; end > 0;) {
    const uint32_t rows = end % kTaskRows != 0 ? end % kTaskRows : kTaskRows;
    end -= rows;
    const uint32_t keys = start + (end + rows - 1) / group_ + 1;
    const uint32_t chunks = ChunkCount(keys);
    const bool split = few_tasks && chunks > 1 && rows <= kTileRows;
    for (uint32_t kv_head = 0; kv_head < layout_.kv_heads; ++kv_head) {
      Task task = {.sequence = sequence,
                   .kv_head = kv_head,
                   .first_row = end,
                   .row_count = rows,
                   .first_chunk = 0,
                   .chunk_count = chunks,
                   .split = kNotSplit,
                   .cost = uint64_t{rows} * keys};
      if (!split) {
        tasks_.push_back(task);
        continue;
      }
      splits_.emplace_back(new Split{
          .chunk_count = chunks, .partials_offset = split_floats_, .pieces_left = {chunks}});
      split_floats_ += uint64_t{chunks} * rows * partial_floats_;
      task.split = static_cast<int32_t>(splits_.size()) - 1;
      task.chunk_count = 1;
      for (; task.first_chunk < chunks; ++task.first_chunk) {
        task.cost = rows * std::min(kChunkKeys, keys - task.first_chunk * kChunkKeys);
        tasks_.push_back(task);
      }
    }
  }
}

void AttentionRun::PlanTasks() {
  uint64_t rows = 0;
  uint64_t task_count = 0;
  for (const SequenceRows& sequence : args_.sequences) {
    first_rows_.push_back(rows);
    rows += sequence.row_count;
    task_count += uint64_t{(sequence.row_count * group_ + kTaskRows - 1) / kTaskRows} * layout_.kv_heads;
  }
  // With so many tasks a thread that gets one more than another does not matter.
  const bool few_tasks = task_count < 8 * context_.threads();
  tasks_.reserve(task_count);
  for (uint32_t i = 0; i < args_.sequences.size(); ++i) {
    PlanSequence(i, args_.sequences[i].row_count * group_, few_tasks);
  }
  std::stable_sort(tasks_.begin(), tasks_.end(),
                   [](const Task& a, const Task& b) { return a.cost > b.cost; });
  // Not zeroed: each partial is written before it is read.
  split_partials_.reset(new Line[split_floats_ / std::size(Line{}.values)]);
}

AttentionRun::Scratch AttentionRun::TakeScratch(const Task& task, uint32_t thread) {
  const auto aligned = [](size_t bytes) { return (bytes + 63) / 64 * 64; };
  const size_t blocks = (LengthOf(task, task.row_count - 1) + layout_.block_tokens - 1) / layout_.block_tokens;
  const size_t planes_bytes = aligned(blocks * sizeof(uint8_t*));
  const size_t queries_bytes = aligned(size_t{kTaskRows} * layout_.head_dim * kernel_.query_bytes);
  const size_t states_bytes = kTaskRows * partial_floats_ * sizeof(float);
  const size_t partials_bytes = kTileRows * partial_floats_ * sizeof(float);
  uint8_t* next = context_.Scratch(
      thread, planes_bytes + queries_bytes + states_bytes + partials_bytes + kTileScratchBytes);
  Scratch scratch;
  scratch.k_planes = reinterpret_cast<const uint8_t**>(next);
  scratch.queries = next += planes_bytes;
  scratch.states = reinterpret_cast<float*>(next += queries_bytes);
  scratch.partials = reinterpret_cast<float*>(next += states_bytes);
  scratch.tile = next += partials_bytes;
  return scratch;
}

void AttentionRun::AttendRows(const Task& task, uint32_t chunk, const Scratch& scratch, bool merge,
                              float* out) {
  const uint32_t first_key = chunk * kChunkKeys;
  const KeyChunk keys = {.k_planes = scratch.k_planes + first_key / layout_.block_tokens,
                         .plane_bytes = static_cast<uint32_t>(layout_.plane_bytes()),
                         .block_tokens = layout_.block_tokens,
                         .head_dim = layout_.head_dim};
  for (uint32_t row = 0; row < task.row_count; row += kTileRows) {
    const uint32_t rows = std::min(kTileRows, task.row_count - row);
    uint32_t visible[kTileRows];
    for (uint32_t i = 0; i < rows; ++i) {
      const uint32_t length = LengthOf(task, row + i);
      visible[i] = std::min(kChunkKeys, length - std::min(length, first_key));
    }
    if (visible[rows - 1] == 0) continue;
    const QueryTile tile = {
        .queries = scratch.queries + size_t{row} * layout_.head_dim * kernel_.query_bytes,
        .rows = rows,
        .visible = visible};
    float* const tile_out = out + size_t{row} * partial_floats_;
    kernel_.attend(keys, tile, scratch.tile, merge ? scratch.partials : tile_out);
    if (!merge) continue;
    for (uint32_t i = 0; i < rows; ++i) {
      if (visible[i] == 0) continue;
      kernel_.merge(scratch.partials + size_t{i} * partial_floats_, layout_.head_dim,
                    tile_out + size_t{i} * partial_floats_);
    }
  }
}

void AttentionRun::MergeSplit(const Task& task, float* states) {
  const Split& split = *splits_[task.split];
  const float* partials = SplitPartials(split);
  std::copy_n(partials, size_t{task.row_count} * partial_floats_, states);
  for (uint32_t chunk = 1; chunk < split.chunk_count; ++chunk) {
    for (uint32_t row = 0; row < task.row_count; ++row) {
      if (LengthOf(task, row) <= chunk * kChunkKeys) continue;
      kernel_.merge(partials + (size_t{chunk} * task.row_count + row) * partial_floats_,
                    layout_.head_dim, states + size_t{row} * partial_floats_);
    }
  }
}

void AttentionRun::Finish(const Task& task, const float* states) {
  for (uint32_t row = 0; row < task.row_count; ++row) {
    kernel_.finish(states + size_t{row} * partial_floats_, layout_.head_dim,
                   args_.out + Offset(task, row, args_.out_stride));
  }
}

void AttentionRun::RunTask(const Task& task, uint32_t thread) {
  constexpr float kLog2OfE = 1.44269504f;  // Scores are exponents of 2.
  const Scratch scratch = TakeScratch(task, thread);
  const uint32_t length = LengthOf(task, task.row_count - 1);
  const uint32_t first_block = task.first_chunk * kChunkKeys / layout_.block_tokens;
  for (uint32_t block = first_block; block * layout_.block_tokens < length; ++block) {
    scratch.k_planes[block] = args_.kv.K(args_.layer, RowsOf(task).blocks[block], task.kv_head);
  }
  for (uint32_t row = 0; row < task.row_count; ++row) {
    kernel_.pack_query(args_.q + Offset(task, row, args_.q_stride), layout_.head_dim,
                       args_.scale * kLog2OfE,
                       scratch.queries + size_t{row} * layout_.head_dim * kernel_.query_bytes);
  }
  if (task.split == kNotSplit) {
    for (uint32_t chunk = 0; chunk < task.chunk_count; ++chunk) {
      AttendRows(task, chunk, scratch, /*merge=*/chunk > 0, scratch.states);
    }
    Finish(task, scratch.states);
    return;
  }
  Split& split = *splits_[task.split];
  AttendRows(task, task.first_chunk, scratch, /*merge=*/false,
             SplitPartials(split) + uint64_t{task.first_chunk} * task.row_count * partial_floats_);
  if (split.pieces_left.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  MergeSplit(task, scratch.states);
  Finish(task, scratch.states);
}

void AttentionRun::Run() {
  PlanTasks();
  if (tasks_.size() == 1) return RunTask(tasks_[0], 0);
  std::atomic<size_t> next{0};
  context_.pool().Run([&](uint32_t thread) {
    for (size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < tasks_.size();) {
      RunTask(tasks_[i], thread);
    }
  });
}

}  // namespace

void RunAttention(const AttentionArgs& args, const AttentionKernel& kernel, KernelContext& context) {
  if (CheckArgs(args) == 0) return;
  AttentionRun(args, kernel, context).Run();
}

}  // namespace baton::kernels
