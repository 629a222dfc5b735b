#include "worker/worker_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "worker/worker_model.h"

namespace baton::worker {
namespace {

WorkerConfig LegalConfig() {
  return {.model_path = "model.gguf", .routers = {"127.0.0.1:50050"}};
}

struct BadCase {
  std::string name;
  std::function<void(WorkerConfig&)> spoil;
  std::string message_has;
};

class BadConfigTest : public testing::TestWithParam<BadCase> {};

TEST_P(BadConfigTest, IsRefusedByName) {
  WorkerConfig config = LegalConfig();
  GetParam().spoil(config);
  const absl::Status status = Validate(config);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr(GetParam().message_has));
}

const BadCase kBadCases[] = {
    {"NoModel", [](auto& c) { c.model_path.clear(); }, "model is required"},
    {"CpuLevel", [](auto& c) { c.cpu_level = "sse9"; }, "sse9"},
    {"Threads", [](auto& c) { c.threads = 1025; }, "threads is 1025"},
    {"BlockTokens", [](auto& c) { c.block_tokens = 24; }, "block_tokens is 24"},
    {"ContextTokens", [](auto& c) { c.context_tokens = 1; }, "context_tokens is 1"},
    {"ChunkTokens", [](auto& c) { c.chunk_tokens = 8; }, "chunk_tokens is 8"},
    {"RunningMax", [](auto& c) { c.running_max = 1025; }, "running_max is 1025"},
    {"QueueRequests", [](auto& c) { c.queue_requests_max = 0; }, "queue_requests_max is 0"},
    {"QueueTokens", [](auto& c) { c.queue_tokens_max = 0; }, "queue_tokens_max is 0"},
    {"NoRouter", [](auto& c) { c.routers.clear(); }, "routers has 0"},
    {"TooManyRouters", [](auto& c) { c.routers.assign(65, "a:1"); }, "routers has 65"},
    {"RouterWithoutPort", [](auto& c) { c.routers = {"router"}; }, "\"router\""},
    {"AnyHostWithoutAddress", [](auto& c) { c.listen_host = "0.0.0.0"; }, "advertise_address"},
    {"AddressWithoutPort", [](auto& c) { c.advertise_address = "pod"; }, "\"pod\""},
    {"Transport", [](auto& c) { c.kv_transports = {"rdma"}; }, "\"rdma\""},
    {"NoTransport", [](auto& c) { c.kv_transports.clear(); }, "kv_transports is empty"},
    {"Nice", [](auto& c) { c.nice = 20; }, "nice is 20"},
    {"Drain", [](auto& c) { c.drain_timeout = absl::Seconds(-1); }, "drain_timeout is -1s"},
};

INSTANTIATE_TEST_SUITE_P(Cases, BadConfigTest, testing::ValuesIn(kBadCases),
                         [](const auto& info) { return info.param.name; });

TEST(WorkerConfig, DefaultsAreLegalOnceAModelAndARouterAreNamed) {
  EXPECT_TRUE(Validate(LegalConfig()).ok());
  WorkerConfig decode = LegalConfig();
  decode.role = WorkerRole::kDecode;
  EXPECT_EQ(EffectiveRunningMax(LegalConfig()), 64u);
  EXPECT_EQ(EffectiveRunningMax(decode), 256u);
}

// 2 layers * 1 head * 2 planes * 16 tokens * 64 dims * 2 bytes = 8 KiB a block.
constexpr kernels::KvLayout kLayout{
    .layers = 2, .kv_heads = 1, .head_dim = 64, .block_tokens = 16};
constexpr uint64_t kBlock = 8192;

TEST(PlanArena, TakesAFifthOfFreeMemoryUpToFourGiB) {
  const auto fifth = PlanArena(LegalConfig(), kLayout, 160, 1000 * kBlock);
  ASSERT_TRUE(fifth.ok());
  EXPECT_EQ(fifth->blocks, 200u);
  EXPECT_EQ(fifth->bytes, 200 * kBlock);
  const auto most = PlanArena(LegalConfig(), kLayout, 160, uint64_t{1} << 40);
  ASSERT_TRUE(most.ok());
  EXPECT_EQ(most->bytes, uint64_t{4} << 30);
}

TEST(PlanArena, HoldsAtLeastOneContext) {
  const auto least = PlanArena(LegalConfig(), kLayout, 161, 20 * kBlock);
  ASSERT_TRUE(least.ok());
  EXPECT_EQ(least->blocks, 11u);
  EXPECT_EQ(PlanArena(LegalConfig(), kLayout, 161, 10 * kBlock).status().code(),
            absl::StatusCode::kResourceExhausted);
  WorkerConfig config = LegalConfig();
  config.arena_bytes = 11 * kBlock - 1;
  EXPECT_EQ(PlanArena(config, kLayout, 161, uint64_t{1} << 40).status().code(),
            absl::StatusCode::kInvalidArgument);
  config.arena_bytes = 12 * kBlock + 1;
  const auto asked = PlanArena(config, kLayout, 161, 0);
  ASSERT_TRUE(asked.ok());
  EXPECT_EQ(asked->blocks, 12u);
}

TEST(ContextTokens, IsTheModelsUpToTheDefaultAndNeverMoreThanTheModels) {
  model::ModelInfo info{.context_tokens = 2048};
  WorkerConfig config = LegalConfig();
  EXPECT_EQ(*ContextTokens(config, info), 2048u);
  info.context_tokens = 131072;
  EXPECT_EQ(*ContextTokens(config, info), kContextTokensDefault);
  config.context_tokens = 32768;
  EXPECT_EQ(*ContextTokens(config, info), 32768u);
  config.context_tokens = 131073;
  EXPECT_EQ(ContextTokens(config, info).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(FreeMemoryBytes, IsNotNothing) { EXPECT_GT(FreeMemoryBytes(), uint64_t{1} << 20); }

}  // namespace
}  // namespace baton::worker
