#include "kvstore/block_hash.h"

#include <numeric>
#include <set>

#include "absl/strings/escaping.h"
#include "gtest/gtest.h"

namespace baton::kvstore {
namespace {

BlockExtras Extras() {
  BlockExtras extras;
  extras.model_digest.resize(32);
  std::iota(extras.model_digest.begin(), extras.model_digest.end(), '\0');
  extras.numerics_class = "cpu-avx512";
  return extras;
}

std::vector<uint32_t> Tokens(uint32_t count) {
  std::vector<uint32_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

// Golden values from Python's hashlib over the format in the header: identity must not drift, since it names blocks on
// other machines and on disk.
TEST(BlockHash, GoldenValues) {
  const std::vector<std::string> digests = BlockDigests(Tokens(19), 8, Extras().Encode());
  ASSERT_EQ(digests.size(), 2u) << "19 tokens fill two blocks of 8";
  EXPECT_EQ(absl::BytesToHexString(digests[0]),
            "b21a6121fd5f831714c3c15db76bbe545e8b4e2dfc16c8fb5ff1ce1e2c6481e8");
  EXPECT_EQ(absl::BytesToHexString(digests[1]),
            "d1d10328d1d43a4bd215e0ae7e499112570d9333d92439963b90a22cb8b89ea2");

  BlockExtras tenant = Extras();
  tenant.adapter_digest = std::string(32, '\7');
  tenant.adapter_scale = 0.5f;
  tenant.cache_salt = "tenant";
  EXPECT_EQ(absl::BytesToHexString(BlockDigest("", Tokens(8), tenant.Encode())),
            "9908ef531690ffe3a7a0f842b627f05d15638511edb0501c6bd43a7e07e9eb2d");
}

TEST(BlockHash, EverythingThatDecidesTheBytesCounts) {
  std::set<std::string> digests;
  const auto add = [&](absl::string_view parent, std::vector<uint32_t> tokens, const BlockExtras& e) {
    EXPECT_TRUE(digests.insert(BlockDigest(parent, tokens, e.Encode())).second);
  };
  add("", Tokens(8), Extras());
  add("", Tokens(16), Extras());
  add(std::string(32, 'p'), Tokens(8), Extras());
  BlockExtras extras = Extras();
  extras.model_digest[0] = 'x';
  add("", Tokens(8), extras);
  extras = Extras();
  extras.numerics_class = "cpu-avx2";
  add("", Tokens(8), extras);
  extras = Extras();
  extras.adapter_digest = std::string(32, 'a');
  add("", Tokens(8), extras);
  extras.adapter_scale = 0.5f;
  add("", Tokens(8), extras);
  extras = Extras();
  extras.cache_salt = "tenant 2";
  add("", Tokens(8), extras);
}

TEST(BlockHash, FieldsDoNotRunIntoEachOther) {
  BlockExtras a, b;
  a.numerics_class = "xy";
  a.adapter_digest = "z";
  b.numerics_class = "x";
  b.adapter_digest = "yz";
  EXPECT_NE(a.Encode(), b.Encode());
}

TEST(BlockHash, AChangedTokenChangesAllLaterBlocks) {
  std::vector<uint32_t> tokens = Tokens(32);
  const std::vector<std::string> before = BlockDigests(tokens, 8, "");
  tokens[9] = 1000;
  const std::vector<std::string> after = BlockDigests(tokens, 8, "");
  EXPECT_EQ(before[0], after[0]);
  for (size_t b = 1; b < 4; ++b) EXPECT_NE(before[b], after[b]) << "block " << b;
}

}  // namespace
}  // namespace baton::kvstore
