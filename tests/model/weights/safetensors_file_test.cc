#include "model/weights/safetensors_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "model/weights/hf_config.h"
#include "safetensors_builder.h"

namespace baton::model {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kConfig[] = R"({"model_type":"llama","hidden_act":"silu","vocab_size":3,"max_position_embeddings":64,
  "num_hidden_layers":1,"hidden_size":4,"intermediate_size":6,"num_attention_heads":1,"num_key_value_heads":1,
  "head_dim":4,"rms_norm_eps":1e-5,"eos_token_id":[1,2],"tie_word_embeddings":true,"rope_theta":500.0})";

struct NamedShape {
  const char* name;
  uint64_t rows, columns;  // rows 0: a vector.
};

constexpr NamedShape kTensors[] = {
    {"model.embed_tokens.weight", 3, 4},
    {"model.norm.weight", 0, 4},
    {"model.layers.0.input_layernorm.weight", 0, 4},
    {"model.layers.0.post_attention_layernorm.weight", 0, 4},
    {"model.layers.0.self_attn.q_proj.weight", 4, 4},
    {"model.layers.0.self_attn.k_proj.weight", 4, 4},
    {"model.layers.0.self_attn.v_proj.weight", 4, 4},
    {"model.layers.0.self_attn.o_proj.weight", 4, 4},
    {"model.layers.0.self_attn.q_proj.bias", 0, 4},
    {"model.layers.0.mlp.gate_proj.weight", 6, 4},
    {"model.layers.0.mlp.up_proj.weight", 6, 4},
    {"model.layers.0.mlp.down_proj.weight", 4, 6},
};

class SafetensorsFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "/baton_" +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    Write("config.json", kConfig);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& name, const std::string& content) {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << content;
  }

  // Each tensor's elements count from 0 up. Tensors [first, last) of the table.
  static std::string Shard(size_t first, size_t last) {
    std::string header, data;
    for (size_t t = first; t < last; ++t) {
      const NamedShape& tensor = kTensors[t];
      const uint64_t elements = std::max<uint64_t>(tensor.rows, 1) * tensor.columns;
      const std::string shape = tensor.rows == 0 ? absl::StrCat(tensor.columns)
                                                 : absl::StrCat(tensor.rows, ",", tensor.columns);
      absl::StrAppend(&header, header.empty() ? "{" : ",", "\"", tensor.name,
                      "\":{\"dtype\":\"F32\",\"shape\":[", shape, "],\"data_offsets\":[", data.size(),
                      ",", data.size() + elements * 4, "]}");
      for (uint64_t i = 0; i < elements; ++i) {
        const float value = static_cast<float>(i);
        data.append(reinterpret_cast<const char*>(&value), sizeof(value));
      }
    }
    return SafetensorsFileBytes(header + "}", data);
  }

  std::string ErrorOfOpen() {
    const auto file = ModelFile::Open(folder_);
    return file.ok() ? "no error" : std::string(file.status().message());
  }

  std::string folder_;
};

std::vector<float> Row(const kernels::TensorView& view, uint64_t row) {
  std::vector<float> values(view.columns);
  kernels::DequantizeRow(view, row, absl::MakeSpan(values));
  return values;
}

TEST_F(SafetensorsFolderTest, PermutesRotatedRowsAndKeepsTheRest) {
  Write("model.safetensors", Shard(0, std::size(kTensors)));
  const auto file = ModelFile::Open(folder_);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE((*file)->config().tied_embeddings);
  EXPECT_EQ((*file)->config().rope.theta, 500.0f);
  EXPECT_THAT((*file)->config().end_of_sequence_ids, ElementsAre(1, 2));
  EXPECT_EQ((*file)->tokenizer(), nullptr);
  // Rows 0, 1, 2, 3 of a head of four pair as (0, 2), (1, 3).
  const kernels::TensorView q = (*file)->tensor("blk.0.attn_q.weight");
  EXPECT_THAT(Row(q, 0), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Row(q, 1), ElementsAre(8, 9, 10, 11));
  EXPECT_THAT(Row(q, 2), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(Row(q, 3), ElementsAre(12, 13, 14, 15));
  EXPECT_THAT(Row((*file)->tensor("blk.0.attn_q.bias"), 0), ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(Row((*file)->tensor("blk.0.attn_v.weight"), 1), ElementsAre(4, 5, 6, 7));
  EXPECT_EQ((*file)->digest().size(), 32u);
}

TEST_F(SafetensorsFolderTest, ReadsShards) {
  Write("a.safetensors", Shard(0, 5));
  Write("b.safetensors", Shard(5, std::size(kTensors)));
  std::string map;
  for (size_t t = 0; t < std::size(kTensors); ++t) {
    absl::StrAppend(&map, t == 0 ? "" : ",", "\"", kTensors[t].name, "\":\"", t < 5 ? "a" : "b",
                    ".safetensors\"");
  }
  Write("model.safetensors.index.json", absl::StrCat("{\"weight_map\":{", map, "}}"));
  ASSERT_TRUE(ModelFile::Open(folder_).ok()) << ModelFile::Open(folder_).status();

  Write("model.safetensors.index.json", absl::StrCat("{\"weight_map\":{", map, ",\"more\":\"b.safetensors\"}}"));
  EXPECT_THAT(ErrorOfOpen(), HasSubstr("weight_map names 13 tensors, the shards have 12"));
  Write("model.safetensors.index.json", R"({"weight_map":{"model.norm.weight":"../a.safetensors"}})");
  EXPECT_THAT(ErrorOfOpen(), HasSubstr("is not the name of a file in the folder"));
  Write("model.safetensors.index.json", R"({"weight_map":{"model.norm.weight":"a.safetensors"}})");
  EXPECT_THAT(ErrorOfOpen(), HasSubstr("where weight_map does not have it"));
  Write("model.safetensors.index.json", R"({"weight_map":{"model.norm.weight":"gone.safetensors"}})");
  EXPECT_EQ(ModelFile::Open(folder_).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(SafetensorsFolderTest, NamesMissingAndUnknownTensors) {
  Write("model.safetensors", Shard(0, std::size(kTensors) - 1));
  EXPECT_THAT(ErrorOfOpen(), HasSubstr("tensor blk.0.ffn_down.weight is missing"));
  Write("model.safetensors",
        SafetensorsFileBytes(R"({"model.layers.0.self_attn.q_norm.weight":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                             std::string(4, '\0')));
  EXPECT_THAT(ErrorOfOpen(), HasSubstr("q_norm.weight is not part of a Llama"));
}

std::string ConfigWith(const std::string& changes) {
  nlohmann::json config = nlohmann::json::parse(kConfig);
  config.merge_patch(nlohmann::json::parse(changes));
  return config.dump();
}

TEST(HfConfig, ReadsBothSpellingsOfRopeScaling) {
  const auto old_key = ParseHfConfig(ConfigWith(R"({"rope_scaling":{"type":"linear","factor":4}})"), "");
  ASSERT_TRUE(old_key.ok()) << old_key.status();
  EXPECT_EQ(old_key->rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(old_key->rope.factor, 4);

  const auto llama3 = ParseHfConfig(
      ConfigWith(R"({"rope_scaling":{"rope_type":"llama3","factor":8,"high_freq_factor":4,"low_freq_factor":1,
                     "original_max_position_embeddings":32}})"), "");
  ASSERT_TRUE(llama3.ok()) << llama3.status();
  EXPECT_EQ(llama3->rope.scaling, RopeScaling::kLlama3);
  EXPECT_EQ(llama3->rope.original_context_tokens, 32u);

  const auto new_key = ParseHfConfig(
      ConfigWith(R"({"rope_theta":null,"rope_parameters":{"rope_type":"yarn","rope_theta":777,"factor":2,
                     "original_max_position_embeddings":32,"attention_factor":1.25}})"), "");
  ASSERT_TRUE(new_key.ok()) << new_key.status();
  EXPECT_EQ(new_key->rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(new_key->rope.theta, 777.0f);
  EXPECT_EQ(new_key->rope.attention_factor, 1.25f);
}

TEST(HfConfig, GenerationConfigNamesTheEnd) {
  const auto config = ParseHfConfig(kConfig, R"({"eos_token_id":0})");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->end_of_sequence_ids, ElementsAre(0));
}

TEST(HfConfig, NamesWhatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"model_type":"mistral"})", "model_type is \"mistral\", must be \"llama\""},
      {R"({"model_type":null})", "model_type is missing"},
      {R"({"hidden_act":"gelu"})", "hidden_act is \"gelu\", must be \"silu\""},
      {R"({"quantization_config":{"bits":4}})", "quantization_config is"},
      {R"({"vocab_size":null})", "vocab_size is missing"},
      {R"({"vocab_size":-1})", "vocab_size is -1"},
      {R"({"vocab_size":1e30})", "vocab_size is 1e+30"},
      {R"({"num_attention_heads":0})", "num_attention_heads is 0"},
      {R"({"num_key_value_heads":3})", "KV head count is 3, must be in [1, 1]"},
      {R"({"head_dim":3})", "head dimension is 3, must be even"},
      {R"({"num_hidden_layers":100000})", "layer count is 100000"},
      {R"({"rms_norm_eps":1})", "RMS epsilon is 1"},
      {R"({"rope_theta":"x"})", "rope_theta is \"x\", must be a finite number"},
      {R"({"rope_scaling":{"type":"longrope","factor":2}})", "rope_type is \"longrope\""},
      {R"({"rope_scaling":{"type":"linear"}})", "rope scaling factor is missing"},
      {R"({"rope_scaling":{"type":"linear","factor":0.5}})", "rope scaling factor is 0.5"},
      {R"({"rope_scaling":{"type":"yarn","factor":2,"mscale":1}})", "mscale is 1, must be absent"},
      {R"({"rope_scaling":7})", "rope scaling is 7, must be an object"},
      {R"({"eos_token_id":3})", "end-of-sequence id is 3, must be in [0, 2]"},
      {R"({"eos_token_id":["x"]})", "eos_token_id is \"x\""},
      {R"({"tie_word_embeddings":1})", "tie_word_embeddings is 1"},
  };
  for (const auto& [change, want] : cases) {
    const auto config = ParseHfConfig(ConfigWith(change), "");
    ASSERT_FALSE(config.ok()) << change;
    EXPECT_THAT(std::string(config.status().message()), HasSubstr(want)) << change;
  }
  EXPECT_THAT(std::string(ParseHfConfig("[1]", "").status().message()), HasSubstr("not a JSON object"));
  EXPECT_THAT(std::string(ParseHfConfig("{", "").status().message()), HasSubstr("not a JSON object"));
  EXPECT_THAT(std::string(ParseHfConfig(std::string(1000, '['), "").status().message()),
              HasSubstr("nested deeper than 8"));
}

}  // namespace
}  // namespace baton::model
