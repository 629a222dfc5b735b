// GGUF files made by llama.cpp's tools, against gguf-py's dequantisation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include "kernels/tensor_view.h"
#include "model/weights/gguf_file.h"
#include "nlohmann/json.hpp"
#include "oracle_dir.h"
#include "tensor_archive.h"

namespace baton::model {
namespace {

nlohmann::json ReadJson(const std::string& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

// All quantised kinds that a listed file may hold are read; others are refused, naming tensor and type.
const std::set<std::string> kSupported = {"F32", "F16", "BF16", "Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q6_K"};

class GgufOracleTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (OracleDir().empty()) GTEST_SKIP() << "no oracle: set BATON_ORACLE_DIR";
    stem_ = OracleDir() + "/gguf/llama3/tiny-llama3." + GetParam();
  }
  std::string stem_;
};

std::vector<float> Dequantized(const kernels::TensorView& view) {
  std::vector<float> values(view.rows * view.columns);
  for (uint64_t row = 0; row < view.rows; ++row) {
    kernels::DequantizeRow(view, row, absl::MakeSpan(values).subspan(row * view.columns, view.columns));
  }
  return values;
}

void ExpectTensorsMatch(const std::string& stem) {
  const auto file = ModelFile::Open(stem + ".gguf");
  ASSERT_TRUE(file.ok()) << file.status();
  const auto expected = ReadTensorArchive(stem + ".expected.safetensors");
  for (const auto& tensor : ReadJson(stem + ".expected.json").at("tensors")) {
    const std::string name = tensor.at("name");
    const kernels::TensorView view = (*file)->tensor(name);
    ASSERT_FALSE(view.empty()) << name;
    EXPECT_EQ(kernels::TensorTypeName(view.type), tensor.at("type").get<std::string>()) << name;
    const std::vector<float> values = Dequantized(view);
    const double absmax = tensor.at("absmax");
    double abs_sum = 0, sum = 0, largest = 0;
    for (const float value : values) {
      sum += value;
      abs_sum += std::abs(value);
      largest = std::max(largest, static_cast<double>(std::abs(value)));
    }
    EXPECT_NEAR(largest, absmax, 1e-5 * absmax) << name;
    EXPECT_NEAR(abs_sum, tensor.at("abs_sum").get<double>(), 1e-5 * abs_sum) << name;
    EXPECT_NEAR(sum, tensor.at("sum").get<double>(), 1e-5 * abs_sum) << name;
    const auto& head = expected.at("head." + name).values;
    for (size_t i = 0; i < head.size(); ++i) {
      ASSERT_NEAR(values[i], head[i], 1e-6 * absmax) << name << " at " << i;
    }
  }
}

TEST_P(GgufOracleTest, DequantizesAsGgufPyOrRefusesByName) {
  std::set<std::string> unsupported;
  const nlohmann::json expected = ReadJson(stem_ + ".expected.json");
  for (const auto& tensor : expected.at("tensors")) {
    if (!kSupported.contains(tensor.at("type"))) unsupported.insert(tensor.at("type"));
  }
  if (unsupported.empty()) return ExpectTensorsMatch(stem_);

  const auto file = ModelFile::Open(stem_ + ".gguf");
  ASSERT_FALSE(file.ok());
  EXPECT_THAT(std::string(file.status().message()),
              testing::ContainsRegex("tensor [a-z0-9_.]+ has type I?Q[0-9]_[0-9KNL]+, must be"));
}

INSTANTIATE_TEST_SUITE_P(Llama3, GgufOracleTest,
                         testing::Values("F32", "F16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K",
                                         "Q3_K_M", "Q4_K_M", "Q5_K_M", "Q6_K", "IQ4_NL"),
                         [](const auto& info) { return info.param; });

TEST(GgufOracle, RefusesOtherArchitectures) {
  if (OracleDir().empty()) GTEST_SKIP() << "no oracle: set BATON_ORACLE_DIR";
  const auto file = ModelFile::Open(OracleDir() + "/gguf/qwen2/tiny-qwen2.Q8_0.gguf");
  EXPECT_THAT(std::string(file.status().message()), testing::HasSubstr("general.architecture is 'qwen2'"));
  const auto folder = ModelFile::Open(OracleDir() + "/models/mistral");
  EXPECT_THAT(std::string(folder.status().message()), testing::HasSubstr("model_type is \"mistral\""));
}

TEST(GgufOracle, ReadsVocabulariesOfAnyArchitecture) {
  if (OracleDir().empty()) GTEST_SKIP() << "no oracle: set BATON_ORACLE_DIR";
  const auto data = ReadGgufTokenizer(OracleDir() + "/tokenizers/ggml-vocab-qwen2.gguf");
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->tokens.size(), 151936u);
  EXPECT_EQ(data->pre, "qwen2");
}

}  // namespace
}  // namespace baton::model
