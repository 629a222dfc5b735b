// Vocabularies of published models, against what two independent tokenizers make of recorded texts.
#include <gtest/gtest.h>
#include <openssl/sha.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "model/tokenizer/tokenizer.h"
#include "model/weights/gguf_file.h"
#include "nlohmann/json.hpp"
#include "tests/model/oracle_dir.h"
#include "tests/source_dir.h"

namespace baton::model {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

fs::path DefaultModel() {
  if (const char* model = std::getenv("BATON_MODEL")) return model;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const fs::path folder = cache != nullptr  ? fs::path(cache)
                          : home != nullptr ? fs::path(home) / ".cache"
                                            : fs::path();
  return folder / "baton" / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf";
}

// A vocabulary and its vectors; nothing is committed but `golden`.
struct Files {
  fs::path vocabulary, vectors;
};

Files FilesOf(const std::string& name) {
  const fs::path golden = fs::path(SourceDir()) / "tests" / "golden";
  if (name == "golden") return {golden / "tiny.Q4_1.gguf", golden / "tokenizer.vectors.json"};
  const fs::path folder = fs::path(OracleDir()) / "tokenizers";
  return {name == "smollm2" ? DefaultModel() : folder / ("ggml-vocab-" + name + ".gguf"),
          folder / (name + ".vectors.json")};
}

class TokenizerVectors : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const Files files = FilesOf(GetParam());
    for (const fs::path& path : {files.vocabulary, files.vectors}) {
      if (!fs::exists(path)) GTEST_SKIP() << path << " is not there";
    }
    const auto data = ReadGgufTokenizer(files.vocabulary.string());
    ASSERT_TRUE(data.ok()) << data.status();
    auto tokenizer = Tokenizer::Create(*data);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = *std::move(tokenizer);
    document_ = Json::parse(std::ifstream(files.vectors));
  }

  std::vector<uint32_t> Encode(const std::string& text, const Tokenizer::EncodeOptions& options) {
    const auto tokens = tokenizer_->Encode(text, options);
    EXPECT_TRUE(tokens.ok()) << tokens.status();
    return tokens.ok() ? *tokens : std::vector<uint32_t>();
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  Json document_;
};

// What only the oracle's files record.
class OracleTokenizers : public TokenizerVectors {};

TEST_P(TokenizerVectors, EncodesAsTheReferences) {
  size_t compared = 0;
  for (const Json& vector : document_["vectors"]) {
    const std::string text = vector["text"];
    if (vector["agree"].get<bool>()) {
      const auto tokens = Encode(text, {});
      EXPECT_EQ(tokens, vector["ids"].get<std::vector<uint32_t>>()) << vector["name"];
      std::string bytes;
      for (const uint32_t token : tokens) bytes += tokenizer_->token_bytes(token);
      EXPECT_EQ(bytes, text) << vector["name"];
      ++compared;
    }
    if (vector["agree_parse_special"].get<bool>()) {
      EXPECT_EQ(Encode(text, {.parse_special = true}),
                vector["ids_parse_special"].get<std::vector<uint32_t>>())
          << vector["name"];
    }
  }
  EXPECT_GE(compared, 40u);
}

TEST_P(OracleTokenizers, AddsBosWhereTheModelDoes) {
  const Tokenizer::EncodeOptions add = {.add_special = true};
  EXPECT_EQ(Encode("Hello", add), document_["add_special_hello"].get<std::vector<uint32_t>>());
  EXPECT_EQ(Encode("", add), document_["add_special_empty"].get<std::vector<uint32_t>>());
}

TEST_P(OracleTokenizers, KnowsTheBytesOfEveryToken) {
  ASSERT_EQ(tokenizer_->vocabulary_size(), document_["n_tokens"].get<uint32_t>());
  std::string lines;
  for (uint32_t token = 0; token < tokenizer_->vocabulary_size(); ++token) {
    absl::StrAppend(&lines, token, "\t", absl::BytesToHexString(tokenizer_->token_bytes(token)),
                    "\n");
  }
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(lines.data()), lines.size(),
         reinterpret_cast<unsigned char*>(digest.data()));
  EXPECT_EQ(absl::BytesToHexString(digest), document_["piece_bytes_sha256"].get<std::string>());
}

TEST_P(OracleTokenizers, StreamsWholeCharacters) {
  for (const Json& stream : document_["streaming"]) {
    IncrementalDetokenizer detokenizer(*tokenizer_, true);
    const auto tokens = stream["ids"].get<std::vector<uint32_t>>();
    for (size_t i = 0; i < tokens.size(); ++i) {
      ASSERT_EQ(absl::BytesToHexString(tokenizer_->token_bytes(tokens[i])),
                stream["piece_hex"][i].get<std::string>());
      ASSERT_EQ(detokenizer.Append(tokens[i]), stream["emit"][i].get<std::string>())
          << stream["name"] << " token " << i;
    }
    EXPECT_EQ(detokenizer.Flush(), stream["flush"].get<std::string>()) << stream["name"];
  }
}

TEST_P(OracleTokenizers, RefusesInvalidUtf8) {
  for (const Json& invalid : document_["invalid_utf8"]) {
    const std::string text = absl::HexStringToBytes(invalid["bytes_hex"].get<std::string>());
    EXPECT_EQ(tokenizer_->Encode(text, {}).status().code(), absl::StatusCode::kInvalidArgument)
        << invalid["bytes_hex"];
  }
}

std::string SuiteName(const ::testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerVectors,
                         ::testing::Values("golden", "smollm2", "llama-bpe", "qwen2"), SuiteName);
INSTANTIATE_TEST_SUITE_P(All, OracleTokenizers, ::testing::Values("smollm2", "llama-bpe", "qwen2"),
                         SuiteName);

TEST(TokenizerOfGguf, OtherKindsAreRefusedByName) {
  const fs::path path = fs::path(OracleDir()) / "tokenizers" / "ggml-vocab-llama-spm.gguf";
  if (!fs::exists(path)) GTEST_SKIP() << path << " is not there";
  const auto data = ReadGgufTokenizer(path.string());
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(Tokenizer::Create(*data).status().message(),
            "tokenizer.ggml.model is \"llama\"; known is gpt2");
}

}  // namespace
}  // namespace baton::model
