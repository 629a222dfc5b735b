#include "kvstore/compatibility.h"

#include <functional>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton::kvstore {
namespace {

Compatibility Ours() {
  return {.model_digest = std::string(32, 'm'),
          .numerics_class = "cpu-avx512-r1",
          .layout = {.layers = 30, .kv_heads = 3, .head_dim = 64, .block_tokens = 16}};
}

TEST(Compatibility, EqualWorkersMayExchange) {
  EXPECT_TRUE(CheckCompatible(Ours(), Ours()).ok());
  EXPECT_EQ(Ours().Digest(), Ours().Digest());
  EXPECT_EQ(Ours().Digest().size(), 32u);
}

TEST(Compatibility, EachFieldCountsAndIsNamed) {
  struct Case {
    const char* message;
    std::function<void(Compatibility&)> change;
  };
  const Case cases[] = {
      {"model digest", [](Compatibility& c) { c.model_digest[31] = 'x'; }},
      {"numerics class is cpu-avx512-r1 here and cpu-avx2-r1 there",
       [](Compatibility& c) { c.numerics_class = "cpu-avx2-r1"; }},
      {"layers is 30 here and 31 there", [](Compatibility& c) { c.layout.layers = 31; }},
      {"kv_heads is 3 here and 4 there", [](Compatibility& c) { c.layout.kv_heads = 4; }},
      {"head_dim is 64 here and 128 there", [](Compatibility& c) { c.layout.head_dim = 128; }},
      {"block_tokens is 16 here and 32 there", [](Compatibility& c) { c.layout.block_tokens = 32; }},
      {"KV type is bf16 here and f16 there",
       [](Compatibility& c) { c.layout.type = kernels::KvType::kF16; }},
  };
  std::set<std::string> digests = {Ours().Digest()};
  for (const Case& test : cases) {
    Compatibility theirs = Ours();
    test.change(theirs);
    const absl::Status status = CheckCompatible(Ours(), theirs);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << test.message;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(test.message));
    EXPECT_TRUE(digests.insert(theirs.Digest()).second) << test.message;
  }
}

}  // namespace
}  // namespace baton::kvstore
