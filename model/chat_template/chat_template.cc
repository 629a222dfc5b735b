#include "model/chat_template/chat_template.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "base/utf8.h"
#include "model/chat_template/interpreter.h"
#include "model/chat_template/json_values.h"
#include "model/chat_template/parser.h"
#include "model/chat_template/python_text.h"
#include "model/chat_template/runtime.h"
#include "nlohmann/json.hpp"

namespace baton::model {
namespace {

jinja::Value TextValue(const std::string& text) {
  return std::make_shared<const jinja::Text>(jinja::Text{text, {}});
}

// The variables that transformers sets, and those of the request.
absl::StatusOr<jinja::Variables> MakeVariables(const ChatTemplateInputs& inputs) {
  CHECK(inputs.messages != nullptr);
  if (!inputs.messages->is_array()) return absl::InvalidArgumentError("messages must be a list");
  if (inputs.extra != nullptr && !inputs.extra->is_object()) {
    return absl::InvalidArgumentError("chat template variables must be an object");
  }
  jinja::Variables variables;
  ASSIGN_OR_RETURN(variables["messages"], jinja::FromJson("messages", *inputs.messages));
  variables["tools"] = jinja::None{};
  if (inputs.tools != nullptr) {
    ASSIGN_OR_RETURN(variables["tools"], jinja::FromJson("tools", *inputs.tools));
  }
  variables["documents"] = jinja::None{};
  variables["add_generation_prompt"] = inputs.add_generation_prompt;
  variables["bos_token"] = TextValue(inputs.bos_text);
  variables["eos_token"] = TextValue(inputs.eos_text);
  if (inputs.extra != nullptr) {
    for (auto item = inputs.extra->begin(); item != inputs.extra->end(); ++item) {
      ASSIGN_OR_RETURN(variables[item.key()],
                       jinja::FromJson("chat template variables", item.value()));
    }
  }
  return variables;
}

class CompiledTemplate final : public ChatTemplate {
 public:
  explicit CompiledTemplate(std::unique_ptr<const jinja::Template> parsed)
      : parsed_(std::move(parsed)) {}

  absl::StatusOr<std::string> Render(const ChatTemplateInputs& inputs) const override {
    ASSIGN_OR_RETURN(const jinja::Variables variables, MakeVariables(inputs));
    jinja::Runtime runtime({.operations_max = kOperationsMax,
                            .bytes_max = kOutputBytesMax,
                            .depth_max = kNestingMax,
                            .now = inputs.now},
                           cases_);
    return jinja::Interpret(*parsed_, variables, runtime);
  }

 private:
  const std::unique_ptr<const jinja::Template> parsed_;
  const jinja::CaseMapper cases_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::Compile(absl::string_view source) {
  if (source.size() > kSourceBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("chat template has ", source.size(),
                                                   " bytes; legal are up to ", kSourceBytesMax));
  }
  if (const size_t offset = base::FindInvalidUtf8(source); offset != absl::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("chat template is not valid UTF-8 at byte offset ", offset));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<const jinja::Template> parsed, jinja::Parse(source));
  return std::make_unique<CompiledTemplate>(std::move(parsed));
}

}  // namespace baton::model
