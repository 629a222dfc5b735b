// A tokenizer and a chat template that a test can read: tokens 0 to 255 are bytes, then come BOS
// and EOS, then words.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/utf8.h"
#include "model/chat_template/chat_template.h"
#include "model/tokenizer/tokenizer.h"
#include "nlohmann/json.hpp"
#include "router/served_model.h"

namespace baton::router {

inline constexpr uint32_t kFakeBos = 256;
inline constexpr uint32_t kFakeEos = 257;
inline constexpr uint32_t kFakeFirstWord = 258;

class FakeTokenizer final : public model::Tokenizer {
 public:
  explicit FakeTokenizer(bool adds_bos = false, const std::vector<std::string>& words = {})
      : adds_bos_(adds_bos) {
    for (int byte = 0; byte < 256; ++byte)
      pieces_.push_back(std::string(1, static_cast<char>(byte)));
    pieces_.push_back("<bos>");
    pieces_.push_back("<eos>");
    pieces_.insert(pieces_.end(), words.begin(), words.end());
  }

  absl::StatusOr<std::vector<uint32_t>> Encode(absl::string_view text,
                                               const EncodeOptions& options) const override {
    const size_t bad = base::FindInvalidUtf8(text);
    if (bad != absl::string_view::npos) {
      return absl::InvalidArgumentError(absl::StrCat("text is not valid UTF-8 at byte ", bad));
    }
    std::vector<uint32_t> tokens;
    while (!text.empty()) {
      const bool bos = options.parse_special && text.substr(0, 5) == "<bos>";
      tokens.push_back(bos ? kFakeBos : static_cast<uint8_t>(text[0]));
      text.remove_prefix(bos ? 5 : 1);
    }
    return tokens;
  }

  uint32_t vocabulary_size() const override { return static_cast<uint32_t>(pieces_.size()); }
  const std::string& token_bytes(uint32_t token) const override { return pieces_.at(token); }
  size_t token_bytes_max() const override { return 5; }  // "<bos>".
  bool is_special(uint32_t token) const override { return token == kFakeBos || token == kFakeEos; }
  std::string bos_text() const override { return "<bos>"; }
  std::string eos_text() const override { return "<eos>"; }
  bool adds_bos() const override { return adds_bos_; }
  uint32_t bos_id() const override { return kFakeBos; }

 private:
  bool adds_bos_;
  std::vector<std::string> pieces_;
};

// "[role]content" for each message, then "[assistant]". Refuses a chat that begins with the
// assistant.
class FakeChatTemplate final : public model::ChatTemplate {
 public:
  explicit FakeChatTemplate(std::string prefix = "") : prefix_(std::move(prefix)) {}
  absl::StatusOr<std::string> Render(const model::ChatTemplateInputs& inputs) const override {
    std::string text = prefix_;
    for (const auto& message : *inputs.messages) {
      const std::string role = message["role"];
      if (role == "assistant" && text == prefix_) {
        return absl::InvalidArgumentError("the assistant must not speak first");
      }
      absl::StrAppend(&text, "[", role, "]", std::string(message["content"]));
    }
    if (inputs.add_generation_prompt) text += "[assistant]";
    return text;
  }

 private:
  std::string prefix_;
};

inline std::shared_ptr<ServedModel> FakeModel(const std::vector<std::string>& words = {}) {
  auto model = std::make_shared<ServedModel>();
  model->name = "fake";
  model->architecture = "llama";
  model->digest = "digest of fake";
  model->tokenizer = std::make_unique<FakeTokenizer>(false, words);
  model->chat_template = std::make_unique<FakeChatTemplate>();
  model->vocabulary_size = model->tokenizer->vocabulary_size();
  model->context_tokens = 1024;
  model->end_of_sequence_ids = {kFakeEos};
  return model;
}

}  // namespace baton::router
