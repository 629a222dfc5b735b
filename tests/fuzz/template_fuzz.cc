// The chat-template interpreter on hostile templates: each ends in a text or an error, within its
// bounds.
#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"
#include "model/chat_template/chat_template.h"
#include "nlohmann/json.hpp"
#include "tests/source_dir.h"

namespace {

using Json = nlohmann::ordered_json;

const Json& Messages() {
  static const Json messages = Json::parse(R"([
    {"role": "system", "content": "You are é."},
    {"role": "user", "content": "Hi\nthere 😊"},
    {"role": "assistant", "content": null, "tool_calls": [{"id": "123456789", "type": "function",
      "function": {"name": "f", "arguments": {"x": [1, 2.5, true]}}}]},
    {"role": "tool", "content": "42", "tool_call_id": "123456789"}])");
  return messages;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using baton::model::ChatTemplate;
  const auto compiled =
      ChatTemplate::Compile(absl::string_view(reinterpret_cast<const char*>(data), size));
  if (!compiled.ok()) return 0;
  baton::model::ChatTemplateInputs inputs;
  inputs.messages = &Messages();
  inputs.tools = &Messages();
  inputs.bos_text = "<s>";
  const auto rendered = (*compiled)->Render(inputs);
  if (!rendered.ok()) return 0;
  CHECK_LE(rendered->size(), ChatTemplate::kOutputBytesMax);
  CHECK(baton::base::FindInvalidUtf8(*rendered) == absl::string_view::npos);
  return 0;
}

// The templates of the interpreter's own test: each feature once.
extern "C" void BatonFuzzSeeds(std::vector<std::string>* seeds) {
  std::ifstream file(baton::SourceDir() + "/tests/model/chat_template/jinja_cases.json");
  const Json cases = Json::parse(file)["cases"];
  for (const Json& test : cases) seeds->push_back(test["template"].get<std::string>());
}
