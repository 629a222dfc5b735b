// The row contract on real models, from tokens to log-probabilities: a request gives exactly the
// same alone, in a batch of 32, with chunks of 16 or 512 tokens, blocks of 8, 16 or 32, one thread
// or two, preempted, or prefilled elsewhere and adopted. Equal means equal bits. The suite; the
// files that include it say on which models.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu_level.h"
#include "model/llama/llama_model.h"
#include "model/weights/model_file.h"
#include "runner/runner.h"
#include "runner/step_planner.h"
#include "tests/model/oracle_dir.h"
#include "tests/runner/test_worker.h"
#include "tests/source_dir.h"

namespace baton::runner {

inline constexpr uint32_t kBatch = 32;
inline constexpr uint32_t kChunkMax = 512;

// tests/golden holds a slice of the oracle; the whole of it may lie outside. Empty: neither has it.
inline std::string FindTinyModel(const std::string& name) {
  const std::filesystem::path golden = std::filesystem::path(SourceDir()) / "tests/golden";
  std::error_code no_folder;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(golden, no_folder)) {
    if (entry.path().filename() == name) return entry.path();
  }
  const std::filesystem::path oracle = model::OracleDir();
  const auto path = oracle / "gguf/llama3" / name;
  return !oracle.empty() && std::filesystem::exists(path) ? path.string() : "";
}

inline std::string FindDefaultModel() {
  const char* set = std::getenv("BATON_MODEL");
  if (set != nullptr && *set != '\0') return set;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  if (cache == nullptr && home == nullptr) return "";
  const std::filesystem::path folder =
      cache != nullptr ? std::filesystem::path(cache) : std::filesystem::path(home) / ".cache";
  const auto path = folder / "baton/models/SmolLM2-135M-Instruct.Q4_1.gguf";
  return std::filesystem::exists(path) ? path.string() : "";
}

inline std::unique_ptr<model::LlamaModel> Load(const model::ModelFile& file,
                                               model::LlamaOptions options) {
  options.batch_rows_max = kChunkMax + kBatch;
  auto model = model::LlamaModel::Load(file, options);
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : nullptr;
}

inline std::vector<SequenceRequest> RandomRequests(const model::ModelInfo& info,
                                                   uint32_t prompt_max, uint32_t output_max) {
  std::mt19937 random(7);
  std::vector<SequenceRequest> requests;
  for (uint32_t i = 0; i < kBatch; ++i) {
    const uint32_t prompt_tokens = 1 + (i * 37 + 11) % prompt_max;
    SequenceRequest request{.id = SequenceId{i},
                            .output_start = prompt_tokens,
                            .max_tokens = 1 + (i * 5 + 3) % output_max};
    for (uint32_t t = 0; t < prompt_tokens; ++t) {
      request.tokens.push_back(random() % info.vocabulary_size);
    }
    request.sampling.logprobs = 3;
    if (i % 2 == 1) {
      request.sampling.temperature = 1.0f;
      request.sampling.top_p = 0.95f;
      request.sampling.repetition_penalty = 1.1f;
      request.sampling.seed = i;
    }
    if (i % 8 == 3) request.prompt_logprobs = 2;
    requests.push_back(std::move(request));
  }
  return requests;
}

inline uint32_t RoomyBlocks(const std::vector<SequenceRequest>& requests, uint32_t block_tokens) {
  uint32_t blocks = 0;
  for (const SequenceRequest& request : requests) {
    blocks += BlocksFor(request.output_start + request.max_tokens, block_tokens);
  }
  return blocks;
}

inline std::unique_ptr<TestWorker> MakeWorker(model::LlamaModel& model, uint32_t blocks,
                                              RunnerConfig config) {
  return std::make_unique<TestWorker>(model, model.kv_layout(), blocks, config);
}

// Each request by itself, in a worker that holds nothing else.
inline Answers Alone(model::LlamaModel& model, const std::vector<SequenceRequest>& requests) {
  Answers answers;
  for (const SequenceRequest& request : requests) {
    const uint32_t blocks = RoomyBlocks({request}, model.kv_layout().block_tokens);
    answers.merge(MakeWorker(model, blocks, {})->Run({request}));
  }
  return answers;
}

// What a mixture gave of the sequences in `want`.
inline void ExpectEqualAnswers(const Answers& got, const Answers& want) {
  for (const auto& [id, answer] : want) {
    EXPECT_EQ(got.at(id), answer) << "sequence " << static_cast<uint64_t>(id);
  }
}

struct ModelCase {
  std::string name;
  std::string file;  // Empty: the default model.
  model::LlamaOptions options;
  uint32_t prompt_max = 100;
  uint32_t output_max = 20;
  uint32_t alone_stride = 1;  // Only every so manieth request is also run alone.
};
inline void PrintTo(const ModelCase& model_case, std::ostream* out) { *out << model_case.name; }

class EqualityTest : public testing::TestWithParam<ModelCase> {
 protected:
  void SetUp() override {
    const ModelCase& param = GetParam();
    if (!kernels::Supported(param.options.cpu_level)) {
      GTEST_SKIP() << "this CPU lacks " << kernels::CpuLevelName(param.options.cpu_level);
    }
    const std::string path = param.file.empty() ? FindDefaultModel() : FindTinyModel(param.file);
    if (path.empty())
      GTEST_SKIP() << "no model " << param.file << "; set BATON_ORACLE_DIR or BATON_MODEL";
    auto file = model::ModelFile::Open(path);
    ASSERT_TRUE(file.ok()) << file.status();
    file_ = *std::move(file);
    model_ = Load(*file_, param.options);
    ASSERT_NE(model_, nullptr);
    requests_ = RandomRequests(model_->info(), param.prompt_max, param.output_max);
    std::vector<SequenceRequest> alone;
    for (uint32_t i = 0; i < kBatch; i += param.alone_stride) alone.push_back(requests_[i]);
    alone_ = Alone(*model_, alone);
  }

  // All requests at once in one worker.
  void ExpectMixtureEqual(model::LlamaModel& model, const RunnerConfig& config) {
    const uint32_t blocks = RoomyBlocks(requests_, model.kv_layout().block_tokens);
    ExpectEqualAnswers(MakeWorker(model, blocks, config)->Run(requests_), alone_);
  }

  std::unique_ptr<model::ModelFile> file_;
  std::unique_ptr<model::LlamaModel> model_;
  std::vector<SequenceRequest> requests_;
  Answers alone_;
};

TEST_P(EqualityTest, AMixtureGivesWhatEachGivesAlone) {
  for (const uint32_t chunk_tokens : {16u, kChunkMax}) {
    SCOPED_TRACE(testing::Message() << "chunk " << chunk_tokens);
    ExpectMixtureEqual(*model_, {.chunk_tokens = chunk_tokens});
  }
}

TEST_P(EqualityTest, BlockSizeAndThreadsDoNotMatter) {
  for (const auto& [block_tokens, threads] : {std::pair{8u, 1u}, {32u, 2u}}) {
    SCOPED_TRACE(testing::Message() << "block " << block_tokens << ", threads " << threads);
    model::LlamaOptions options = GetParam().options;
    options.block_tokens = block_tokens;
    options.threads = threads;
    const auto model = Load(*file_, options);
    ASSERT_NE(model, nullptr);
    EXPECT_EQ(model->numerics_class(), model_->numerics_class());
    ExpectMixtureEqual(*model, {.chunk_tokens = 64});
  }
}

TEST_P(EqualityTest, PreemptionDoesNotMatter) {
  const auto worker = MakeWorker(*model_, RoomyBlocks(requests_, 16), {});
  Answers got;
  std::vector<kvstore::KvBlockId> outside;
  StepInbox inbox{.add = requests_};
  do {
    const StepOutbox outbox = worker->Step(std::exchange(inbox, {}));
    TakeOutbox(outbox, got);
    if (worker->preempted() > 0 || outbox.idle) {
      worker->pool().Release(std::exchange(outside, {}));
    } else {
      // Someone else takes all free blocks until a sequence has to give way.
      const kvstore::KvPoolCounts counts = worker->pool().counts();
      const size_t taken = outside.size();
      outside.resize(taken + counts.free - counts.reserved);
      ASSERT_TRUE(worker->pool().Allocate(absl::MakeSpan(outside).subspan(taken)).ok());
    }
  } while (worker->runner().counts().running + worker->runner().counts().waiting > 0);
  worker->pool().Release(outside);
  EXPECT_GT(worker->preempted(), 0u);
  ExpectEqualAnswers(got, alone_);
}

TEST_P(EqualityTest, PrefilledElsewhereAndAdoptedIsTheSame) {
  const uint32_t blocks = RoomyBlocks(requests_, 16);
  const auto prefill = MakeWorker(*model_, blocks, {.chunk_tokens = 32});
  const auto decode = MakeWorker(*model_, blocks, {});
  ExpectEqualAnswers(prefill->RunHandedOver(requests_, *decode), alone_);
}

}  // namespace baton::runner
