#include "model/llama/packed_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "llama_harness.h"
#include "tests/source_dir.h"

namespace baton::model {
namespace {

class PackedFileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "/baton_packed_" +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::vector<std::string> Files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      names.push_back(entry.path().filename());
    }
    return names;
  }

  std::string folder_;
};

TEST_F(PackedFileTest, ReadsBackWhatWasWritten) {
  const std::string path = folder_ + "/deep/a.packed";
  const std::vector<uint8_t> payload = {1, 2, 3, 4, 5};
  std::vector<uint8_t> read(payload.size());
  EXPECT_EQ(ReadPackedFile(path, absl::MakeSpan(read)).code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(WritePackedFile(path, payload).ok());
  ASSERT_TRUE(ReadPackedFile(path, absl::MakeSpan(read)).ok());
  EXPECT_EQ(read, payload);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_ + "/deep"), {}), 1);
}

TEST_F(PackedFileTest, SeesDamage) {
  const std::string path = folder_ + "/a.packed";
  const std::vector<uint8_t> payload(1000, 7);
  std::vector<uint8_t> read(payload.size());
  const auto damage = [&](auto change) {
    ASSERT_TRUE(WritePackedFile(path, payload).ok());
    change();
    EXPECT_EQ(ReadPackedFile(path, absl::MakeSpan(read)).code(), absl::StatusCode::kDataLoss);
  };
  damage([&] { std::filesystem::resize_file(path, 700); });
  damage([&] { std::filesystem::resize_file(path, 2000); });
  damage([&] { std::filesystem::resize_file(path, 0); });
  for (const int offset : {0, 8, 16, 64 + 999}) {
    damage([&] {
      std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(offset);
      file.put('\x55');
    });
  }
  std::vector<uint8_t> other(999);
  ASSERT_TRUE(WritePackedFile(path, payload).ok());
  EXPECT_EQ(ReadPackedFile(path, absl::MakeSpan(other)).code(), absl::StatusCode::kDataLoss);
}

TEST_F(PackedFileTest, LeavesNothingBehindWhenItCannotWrite) {
  std::ofstream(folder_) << "a file stands where the folder should be";
  EXPECT_EQ(WritePackedFile(folder_ + "/a.packed", std::vector<uint8_t>(10)).code(),
            absl::StatusCode::kUnavailable);
}

std::vector<float> FirstLogits(LlamaHarness& model) {
  LlamaHarness::Sequence sequence = model.NewSequence(16);
  const uint32_t tokens[] = {5, 6, 7};
  return model.Run({{&sequence, tokens, 1}});
}

TEST_F(PackedFileTest, SecondStartReadsAndComputesTheSame) {
  const std::string path = SourceDir() + "/tests/golden/tiny.Q4_1.gguf";
  const LlamaOptions options = {.threads = 1, .cache_folder = folder_};
  LlamaHarness first(path, options, 64);
  EXPECT_THAT(first.model().description(), testing::HasSubstr("packed now, kept in"));
  ASSERT_EQ(Files().size(), 1u);

  LlamaHarness second(path, options, 64);
  EXPECT_THAT(second.model().description(), testing::HasSubstr("read from"));
  EXPECT_EQ(FirstLogits(first), FirstLogits(second));

  // Damage is found and healed.
  const std::string packed = folder_ + "/" + Files()[0];
  std::filesystem::resize_file(packed, std::filesystem::file_size(packed) - 64);
  LlamaHarness third(path, options, 64);
  EXPECT_THAT(third.model().description(), testing::HasSubstr("packed now (" + packed + " is not a packed file"));
  EXPECT_EQ(FirstLogits(first), FirstLogits(third));
  LlamaHarness fourth(path, options, 64);
  EXPECT_THAT(fourth.model().description(), testing::HasSubstr("read from"));
}

TEST_F(PackedFileTest, AnUnwritableFolderIsTold) {
  std::ofstream(folder_) << "a file stands where the folder should be";
  LlamaHarness model(SourceDir() + "/tests/golden/tiny.Q4_1.gguf", {.threads = 1, .cache_folder = folder_}, 64);
  EXPECT_THAT(model.model().description(), testing::HasSubstr("packed now"));
  EXPECT_THAT(model.model().description(), testing::HasSubstr("not kept:"));
}

}  // namespace
}  // namespace baton::model
