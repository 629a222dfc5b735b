#include "model/weights/gguf_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>
#include <fstream>
#include <new>

#include "gguf_builder.h"

namespace baton::model {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

absl::StatusOr<std::unique_ptr<ModelFile>> Parse(const std::string& file) {
  return ParseGgufFile("folder/model.gguf",
                       absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(file.data()), file.size()));
}

std::string ErrorOf(const std::string& file) {
  const auto parsed = Parse(file);
  return parsed.ok() ? "no error" : std::string(parsed.status().message());
}

TEST(GgufFile, ReadsAWholeModel) {
  const std::string file = TinyLlamaFile();
  const auto model = Parse(file);
  ASSERT_TRUE(model.ok()) << model.status();
  const LlamaConfig& config = (*model)->config();
  EXPECT_EQ((*model)->name(), "tiny");
  EXPECT_EQ((*model)->file_bytes(), file.size());
  EXPECT_EQ(config.vocabulary_size, kTinyVocabulary);
  EXPECT_EQ(config.head_dim, 16u);
  EXPECT_EQ(config.rope.dimensions, 16u);
  EXPECT_TRUE(config.tied_embeddings);
  EXPECT_THAT(config.end_of_sequence_ids, ElementsAre(3));
  EXPECT_EQ((*model)->chat_template(), "{{ messages[0].content }}");

  const TokenizerData* tokenizer = (*model)->tokenizer();
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->pre, "smollm");
  EXPECT_THAT(tokenizer->tokens, ElementsAre("a", "b", "ab", "<end>"));
  EXPECT_THAT(tokenizer->types, ElementsAre(1, 1, 1, 3));
  EXPECT_THAT(tokenizer->merges, ElementsAre("a b"));
  EXPECT_EQ(tokenizer->eos_id, 3u);
  EXPECT_FALSE(tokenizer->bos_id.has_value());
  EXPECT_FALSE(tokenizer->add_bos.has_value());

  const kernels::TensorView k = (*model)->tensor("blk.0.attn_k.weight");
  EXPECT_EQ(k.rows, 16u);
  EXPECT_EQ(k.columns, kTinyHidden);
  EXPECT_TRUE((*model)->tensor("output.weight").empty());
}

TEST(GgufFile, DigestFollowsWeightsAndConfiguration) {
  const std::string file = TinyLlamaFile();
  const std::string digest = (*Parse(file))->digest();
  EXPECT_EQ(digest.size(), 32u);
  EXPECT_EQ((*Parse(file))->digest(), digest);

  std::string other_weight = file;
  other_weight[other_weight.size() - 2] ^= 1;
  EXPECT_NE((*Parse(other_weight))->digest(), digest);

  GgufBuilder other_theta = TinyLlamaMetadata();
  other_theta.String("llama.rope.scaling.type", "linear").Float("llama.rope.scaling.factor", 2);
  EXPECT_NE((*Parse(AddTinyTensors(other_theta).Build()))->digest(), digest);
}

TEST(GgufFile, ReadsRopeScaling) {
  GgufBuilder yarn = TinyLlamaMetadata();
  yarn.String("llama.rope.scaling.type", "yarn")
      .Float("llama.rope.scaling.factor", 4)
      .Uint32("llama.rope.scaling.original_context_length", 16);
  const std::string file = AddTinyTensors(yarn).Build();
  const auto model = Parse(file);
  ASSERT_TRUE(model.ok()) << model.status();
  const RopeConfig& rope = (*model)->config().rope;
  EXPECT_EQ(rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(rope.factor, 4);
  EXPECT_EQ(rope.original_context_tokens, 16u);
  EXPECT_FALSE(rope.attention_factor.has_value());
}

TEST(GgufFile, RefusesUnsupportedTensorTypesByName) {
  GgufBuilder q2 = TinyLlamaMetadata();
  AddTinyTensors(q2, "blk.0.ffn_up.weight")
      .Tensor("blk.0.ffn_up.weight", {kTinyHidden, kTinyFeedForward}, 10, std::string(4096, '\0'));
  EXPECT_THAT(ErrorOf(q2.Build()), HasSubstr("tensor blk.0.ffn_up.weight has type Q2_K, must be"));

  GgufBuilder unknown = TinyLlamaMetadata();
  AddTinyTensors(unknown, "blk.0.ffn_up.weight")
      .Tensor("blk.0.ffn_up.weight", {kTinyHidden, kTinyFeedForward}, 200, std::string(4096, '\0'));
  EXPECT_THAT(ErrorOf(unknown.Build()), HasSubstr("has type number 200"));
}

TEST(GgufFile, RefusesOtherArchitecturesByName) {
  GgufBuilder qwen;
  qwen.String("general.architecture", "qwen2");
  EXPECT_THAT(ErrorOf(qwen.Build()), HasSubstr("general.architecture is 'qwen2', must be 'llama'"));
  EXPECT_THAT(ErrorOf(GgufBuilder().Build()), HasSubstr("general.architecture is ''"));

  GgufBuilder mixtral = TinyLlamaMetadata();
  mixtral.Uint32("llama.expert_count", 8);
  EXPECT_THAT(ErrorOf(AddTinyTensors(mixtral).Build()), HasSubstr("llama.expert_count is 8"));
}

TEST(GgufFile, RefusesWhatWouldChangeTheArithmetic) {
  GgufBuilder scale = TinyLlamaMetadata();
  scale.Float("llama.logit_scale", 0.5f);
  EXPECT_THAT(ErrorOf(AddTinyTensors(scale).Build()), HasSubstr("llama.logit_scale is present"));

  GgufBuilder longrope = TinyLlamaMetadata();
  longrope.String("llama.rope.scaling.type", "longrope").Float("llama.rope.scaling.factor", 2);
  EXPECT_THAT(ErrorOf(AddTinyTensors(longrope).Build()), HasSubstr("type is 'longrope'"));
}

TEST(GgufFile, NoTensorIsIgnoredOrMissing) {
  for (const TinyTensor& tensor : TinyLlamaTensors()) {
    GgufBuilder builder = TinyLlamaMetadata();
    EXPECT_THAT(ErrorOf(AddTinyTensors(builder, tensor.name).Build()),
                HasSubstr("tensor " + tensor.name + " is missing"));
  }
  GgufBuilder extra = TinyLlamaMetadata();
  AddTinyTensors(extra).Tensor("blk.0.attn_q_norm.weight", {16}, 0, std::string(64, '\0'));
  EXPECT_THAT(ErrorOf(extra.Build()), HasSubstr("blk.0.attn_q_norm.weight is not part of a Llama"));

  GgufBuilder other_layer = TinyLlamaMetadata();
  AddTinyTensors(other_layer).Tensor("blk.1.attn_norm.weight", {kTinyHidden}, 0, std::string(128, '\0'));
  EXPECT_THAT(ErrorOf(other_layer.Build()), HasSubstr("blk.1.attn_norm.weight is not part of"));
}

TEST(GgufFile, ChecksShapesAndBytes) {
  GgufBuilder shape = TinyLlamaMetadata();
  AddTinyTensors(shape, "blk.0.attn_norm.weight")
      .Tensor("blk.0.attn_norm.weight", {16}, 0, std::string(64, '\0'));
  EXPECT_THAT(ErrorOf(shape.Build()),
              HasSubstr("blk.0.attn_norm.weight has shape [1, 16], must have [1, 32]"));

  GgufBuilder quantised_norm = TinyLlamaMetadata();
  AddTinyTensors(quantised_norm, "output_norm.weight")
      .Tensor("output_norm.weight", {kTinyHidden}, 8, std::string(34, '\0'));
  EXPECT_THAT(ErrorOf(quantised_norm.Build()), HasSubstr("output_norm.weight has type Q8_0"));

  GgufBuilder columns = TinyLlamaMetadata();
  AddTinyTensors(columns, "blk.0.attn_q.weight")
      .Tensor("blk.0.attn_q.weight", {kTinyHidden, kTinyHidden}, 14, std::string(8192, '\0'));
  EXPECT_THAT(ErrorOf(columns.Build()), HasSubstr("has 32 columns, must be a multiple of 256"));

  const std::string whole = TinyLlamaFile();
  EXPECT_THAT(ErrorOf(whole.substr(0, whole.size() - 1)),
              HasSubstr("tensor blk.0.ffn_down.weight at offset"));

  GgufBuilder overlap = TinyLlamaMetadata();
  AddTinyTensors(overlap, "blk.0.attn_norm.weight").TensorAt("blk.0.attn_norm.weight", {kTinyHidden}, 0, 32);
  EXPECT_THAT(ErrorOf(overlap.Build()), HasSubstr("overlap"));

  GgufBuilder twice = TinyLlamaMetadata();
  AddTinyTensors(twice).Tensor("output_norm.weight", {kTinyHidden}, 0, std::string(128, '\0'));
  EXPECT_THAT(ErrorOf(twice.Build()), HasSubstr("tensor output_norm.weight occurs twice"));
}

TEST(GgufFile, ChecksTheTokenizer) {
  GgufBuilder five = TinyLlamaSizes();
  five.Strings("tokenizer.ggml.tokens", {"a", "b", "c", "d", "e"});
  EXPECT_THAT(ErrorOf(AddTinyTensors(five).Build()),
              HasSubstr("tokenizer.ggml.tokens has 5 elements, must have at most the 4 rows"));

  GgufBuilder eos = TinyLlamaSizes();
  eos.Uint32("tokenizer.ggml.eos_token_id", 4);
  EXPECT_THAT(ErrorOf(AddTinyTensors(eos).Build()),
              HasSubstr("end-of-sequence id is 4, must be in [0, 3]"));
}

// Empty strings cost 8 bytes each in the file and 32 in memory.
TEST(GgufFile, BoundsTheTokenizersMemory) {
  const uint64_t count = 2'000'000;
  std::string body = GgufBuilder::Raw(uint32_t{8}) + GgufBuilder::Raw(count);
  body.resize(body.size() + count * 8);
  GgufBuilder builder = TinyLlamaSizes();
  builder.Add("tokenizer.ggml.tokens", 9, body);
  EXPECT_THAT(ErrorOf(AddTinyTensors(builder).Build()),
              HasSubstr("tokenizer.ggml.tokens is 2000000, must be at most 1048576"));
}

// Lists of empty strings, 8 bytes each in the file, as many as are legal: no file makes the reader take more.
GgufBuilder LargestTokenizer() {
  const uint64_t tokens = 1 << 20, merges = 1 << 18;
  const auto list = [](uint32_t type, uint64_t count, uint64_t element_bytes) {
    std::string body = GgufBuilder::Raw(type) + GgufBuilder::Raw(count);
    body.resize(body.size() + count * element_bytes);
    return body;
  };
  GgufBuilder builder = TinyLlamaSizes();
  builder.Add("tokenizer.ggml.tokens", 9, list(8, tokens, 8))
      .Add("tokenizer.ggml.merges", 9, list(8, merges, 8))
      .Add("tokenizer.ggml.token_type", 9, list(4, tokens, 4));
  return AddTinyTensors(builder);
}

// Bytes of this process's private writable memory, from /proc/self/status.
uint64_t DataBytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  uint64_t kilobytes = 0;
  while (status >> word) {
    if (word == "VmData:") status >> kilobytes;
  }
  return kilobytes << 10;
}

TEST(GgufFileDeathTest, TakesAtMost64MegabytesBeyondTheFile) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's own memory counts";
#endif
  const std::string file = LargestTokenizer().Build();
  const auto parse_within = [&](uint64_t bytes) {
    const rlimit limit = {.rlim_cur = DataBytes() + bytes, .rlim_max = RLIM_INFINITY};
    if (setrlimit(RLIMIT_DATA, &limit) != 0) std::exit(2);
    try {
      const std::string error = ErrorOf(file);
      std::exit(error.find("tokenizer.ggml.tokens has 1048576 elements") != std::string::npos ? 0 : 3);
    } catch (const std::bad_alloc&) {
      std::exit(4);
    }
  };
  EXPECT_EXIT(parse_within(uint64_t{64} << 20), testing::ExitedWithCode(0), "");
  // And the limit is one: with a quarter of it memory runs out.
  EXPECT_EXIT(parse_within(uint64_t{16} << 20), testing::ExitedWithCode(4), "");
}

TEST(ModelFile, SaysWhatIsNotThere) {
  const auto missing = ModelFile::Open("/nonexistent/model.gguf");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("/nonexistent/model.gguf"));
}

}  // namespace
}  // namespace baton::model
