// The Llama architecture on the CPU op table.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#ifdef BATON_PLANTED_FAULTS
#include "kernels/attention/attention.h"
#endif
#include "kernels/cpu_level.h"
#include "kernels/kv_layout.h"
#include "model/model.h"
#include "model/weights/model_file.h"

namespace baton::model {

struct LlamaOptions {
  kernels::CpuLevel cpu_level = kernels::BestCpuLevel();
  uint32_t threads = 0;                        // 0: one per core this process may use.
  std::optional<kernels::KvType> kv_type;      // Absent: f32 if all matrices are F32, else bf16.
  uint32_t block_tokens = 16;
  uint32_t batch_rows_max = 1024;              // Rows of one Forward().
  std::string cache_folder;                    // Where the packed file is kept; empty: packed in memory, never kept.
#ifdef BATON_PLANTED_FAULTS
  // Test builds only: taken in place of the level's attention, to prove that the equality tests see a broken one.
  kernels::AttentionFn planted_attention = nullptr;
#endif
};

class LlamaModel : public Model {
 public:
  // Packs the weights, or maps the packed file of an earlier start. `file` must outlive the model. INVALID_ARGUMENT when
  // a tensor is missing or has the wrong shape; UNIMPLEMENTED when this CPU lacks the level, naming it.
  static absl::StatusOr<std::unique_ptr<LlamaModel>> Load(const ModelFile& file,
                                                          const LlamaOptions& options);
  // The layout that Forward() expects of its arena.
  virtual kernels::KvLayout kv_layout() const = 0;
  // Of the packed weights, which a step reads once.
  virtual uint64_t packed_bytes() const = 0;
  // One line for the log: level, what it falls back from and why, threads, packed bytes and where they came from.
  virtual std::string description() const = 0;
};

}  // namespace baton::model
