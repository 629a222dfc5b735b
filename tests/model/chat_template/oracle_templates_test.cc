// Published chat templates, rendered over recorded chats and compared with what transformers
// rendered.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_replace.h"
#include "model/chat_template/chat_template.h"
#include "nlohmann/json.hpp"
#include "tests/model/oracle_dir.h"
#include "tests/source_dir.h"

namespace baton::model {
namespace {

using Json = nlohmann::ordered_json;

std::filesystem::path PathOf(const std::string& name) {
  if (name == "golden") return SourceDir() + "/tests/golden/chat_template.json";
  return std::filesystem::path(OracleDir()) / "chat_templates" / (name + ".json");
}

class OracleTemplates : public ::testing::TestWithParam<const char*> {};

TEST_P(OracleTemplates, RenderAsTransformersDoes) {
  const std::filesystem::path path = PathOf(GetParam());
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  const Json file = Json::parse(std::ifstream(path));
  const auto compiled = ChatTemplate::Compile(file["template"].get<std::string>());
  ASSERT_TRUE(compiled.ok()) << compiled.status();

  const std::string frozen = file.value("strftime_now_is_frozen_at", "2025-03-14T15:09:26");
  absl::Time now;
  std::string error;
  ASSERT_TRUE(absl::ParseTime("%Y-%m-%dT%H:%M:%S", frozen, &now, &error)) << error;
  size_t index = 0;
  for (const Json& test : file["cases"]) {
    ChatTemplateInputs inputs;
    inputs.messages = &test["messages"];
    if (!test["tools"].is_null()) inputs.tools = &test["tools"];
    inputs.extra = &test["kwargs"];
    inputs.add_generation_prompt = test["add_generation_prompt"].get<bool>();
    inputs.bos_text = file["bos_token"].get<std::string>();
    inputs.eos_text = file["eos_token"].get<std::string>();
    inputs.now = now;
    const auto rendered = (*compiled)->Render(inputs);
    const std::string where =
        std::string(GetParam()) + " case " + std::to_string(index++) + " " + test["name"].dump();
    if (test.contains("error")) {
      EXPECT_EQ(rendered.status().code(), absl::StatusCode::kInvalidArgument) << where;
      // What a template raises is its own words; other errors are ours.
      if (test["error"] == "TemplateError") {
        EXPECT_EQ(rendered.status().message(), test["error_message"].get<std::string>()) << where;
      }
      continue;
    }
    ASSERT_TRUE(rendered.ok()) << where << ": " << rendered.status();
    EXPECT_EQ(*rendered, test["expected"].get<std::string>()) << where;
  }
  EXPECT_EQ(index, file["cases"].size());
  EXPECT_GT(index, 5u);
}

INSTANTIATE_TEST_SUITE_P(All, OracleTemplates,
                         ::testing::Values("golden", "deepseek-r1-distill-llama", "gemma-2",
                                           "hermes-3-tool-use", "llama-3.1", "mistral-nemo",
                                           "mistral-v1", "phi-3.5", "qwen2.5", "qwen3",
                                           "smollm2-chatml"),
                         [](const ::testing::TestParamInfo<const char*>& info) {
                           return absl::StrReplaceAll(info.param, {{"-", "_"}, {".", "_"}});
                         });

}  // namespace
}  // namespace baton::model
