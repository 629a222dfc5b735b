#include "model/weights/gguf_file.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "model/weights/gguf_config.h"
#include "model/weights/gguf_container.h"
#include "model/weights/llama_tensors.h"
#include "model/weights/mapped_file.h"
#include "model/weights/model_digest.h"

namespace baton::model {
namespace {

using kernels::TensorType;
using kernels::TensorView;

struct GgmlType {
  uint32_t number;
  const char* name;
  std::optional<TensorType> ours;  // Absent: known, not supported.
};

// ggml's numbering. Holes are types that were withdrawn.
constexpr GgmlType kGgmlTypes[] = {
    {0, "F32", TensorType::kF32},    {1, "F16", TensorType::kF16},
    {2, "Q4_0", TensorType::kQ4_0},  {3, "Q4_1", TensorType::kQ4_1},
    {6, "Q5_0", std::nullopt},       {7, "Q5_1", std::nullopt},
    {8, "Q8_0", TensorType::kQ8_0},  {9, "Q8_1", std::nullopt},
    {10, "Q2_K", std::nullopt},      {11, "Q3_K", std::nullopt},
    {12, "Q4_K", TensorType::kQ4_K}, {13, "Q5_K", std::nullopt},
    {14, "Q6_K", TensorType::kQ6_K}, {15, "Q8_K", std::nullopt},
    {16, "IQ2_XXS", std::nullopt},   {17, "IQ2_XS", std::nullopt},
    {18, "IQ3_XXS", std::nullopt},   {19, "IQ1_S", std::nullopt},
    {20, "IQ4_NL", std::nullopt},    {21, "IQ3_S", std::nullopt},
    {22, "IQ2_S", std::nullopt},     {23, "IQ4_XS", std::nullopt},
    {24, "I8", std::nullopt},        {25, "I16", std::nullopt},
    {26, "I32", std::nullopt},       {27, "I64", std::nullopt},
    {28, "F64", std::nullopt},       {29, "IQ1_M", std::nullopt},
    {30, "BF16", TensorType::kBf16}, {34, "TQ1_0", std::nullopt},
    {35, "TQ2_0", std::nullopt},     {39, "MXFP4", std::nullopt},
};

absl::StatusOr<TensorType> SupportedType(const GgufTensor& tensor) {
  const auto known = std::find_if(std::begin(kGgmlTypes), std::end(kGgmlTypes),
                                  [&](const GgmlType& t) { return t.number == tensor.type; });
  if (known != std::end(kGgmlTypes) && known->ours.has_value()) return *known->ours;
  return absl::InvalidArgumentError(absl::StrCat(
      "tensor ", tensor.name, " has type ",
      known != std::end(kGgmlTypes) ? known->name : absl::StrCat("number ", tensor.type),
      ", must be F32, F16, BF16, Q4_0, Q4_1, Q8_0, Q4_K or Q6_K"));
}

// REQUIRES: dims and offset as ParseGguf() checks them, so that nothing here overflows.
absl::StatusOr<TensorView> ViewOf(const GgufTensor& tensor, absl::Span<const uint8_t> data) {
  TensorView view = {.rows = tensor.rows, .columns = tensor.columns};
  ASSIGN_OR_RETURN(view.type, SupportedType(tensor));
  if (tensor.columns % kernels::BlockElements(view.type) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor ", tensor.name, " has ", tensor.columns, " columns, must be a multiple of ",
        kernels::BlockElements(view.type), " for its type"));
  }
  if (view.bytes() > data.size() - tensor.offset) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", tensor.name, " at offset ",
                                                   tensor.offset, " needs ", view.bytes(),
                                                   " bytes, the file has ",
                                                   data.size() - tensor.offset, " more"));
  }
  view.data = data.data() + tensor.offset;
  return view;
}

// No byte belongs to two tensors.
absl::Status CheckDisjoint(const TensorMap& tensors) {
  std::vector<std::pair<const uint8_t*, const TensorMap::value_type*>> by_address;
  for (const auto& entry : tensors) by_address.emplace_back(entry.second.data, &entry);
  std::sort(by_address.begin(), by_address.end());
  for (size_t i = 1; i < by_address.size(); ++i) {
    const auto& [before_name, before] = *by_address[i - 1].second;
    const auto& [name, view] = *by_address[i].second;
    if (view.data < before.data + before.bytes()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensors ", before_name, " and ", name, " overlap"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<TensorMap> ViewTensors(const GgufContainer& container) {
  TensorMap tensors;
  for (const GgufTensor& tensor : container.tensors) {
    ASSIGN_OR_RETURN(const TensorView view, ViewOf(tensor, container.data));
    if (!tensors.emplace(std::string(tensor.name), view).second) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", tensor.name, " occurs twice"));
    }
  }
  RETURN_IF_ERROR(CheckDisjoint(tensors));
  return tensors;
}

class GgufFile final : public ModelFile {
 public:
  GgufFile(std::string path, uint64_t file_bytes) : path_(std::move(path)), bytes_(file_bytes) {}

  absl::Status Init(const GgufContainer& container) {
    RETURN_IF_ERROR(CheckArchitecture(container.metadata));
    ASSIGN_OR_RETURN(tensors_, ViewTensors(container));
    const auto embeddings = tensors_.find("token_embd.weight");
    if (embeddings == tensors_.end()) {
      return absl::InvalidArgumentError("tensor token_embd.weight is missing");
    }
    ASSIGN_OR_RETURN(config_, GgufLlamaConfig(container.metadata, embeddings->second.rows));
    config_.tied_embeddings = !tensors_.contains("output.weight");
    RETURN_IF_ERROR(Validate(config_));
    RETURN_IF_ERROR(CheckLlamaTensors(config_, tensors_));

    ASSIGN_OR_RETURN(tokenizer_, GgufTokenizer(container.metadata));
    if (tokenizer_.has_value() && tokenizer_->tokens.size() > config_.vocabulary_size) {
      return absl::InvalidArgumentError(
          absl::StrCat("tokenizer.ggml.tokens has ", tokenizer_->tokens.size(),
                       " elements, must have at most the ", config_.vocabulary_size,
                       " rows of token_embd.weight"));
    }
    ASSIGN_OR_RETURN(chat_template_, GgufChatTemplate(container.metadata));
    ASSIGN_OR_RETURN(name_, GgufName(container.metadata));
    if (name_.empty()) name_ = path_.substr(path_.find_last_of('/') + 1);
    return absl::OkStatus();
  }

  void Own(std::unique_ptr<MappedFile> mapping) { mapping_ = std::move(mapping); }

  const std::string& path() const override { return path_; }
  const std::string& name() const override { return name_; }
  const LlamaConfig& config() const override { return config_; }
  const TokenizerData* tokenizer() const override {
    return tokenizer_.has_value() ? &*tokenizer_ : nullptr;
  }
  const std::string& chat_template() const override { return chat_template_; }
  TensorView tensor(absl::string_view gguf_name) const override {
    const auto found = tensors_.find(gguf_name);
    return found == tensors_.end() ? TensorView{} : found->second;
  }
  const std::string& digest() const override {
    std::call_once(digest_once_, [this] { digest_ = ModelDigest(config_, tensors_); });
    return digest_;
  }
  uint64_t file_bytes() const override { return bytes_; }

 private:
  std::unique_ptr<MappedFile> mapping_;  // Null: the caller owns the bytes.
  std::string path_;
  uint64_t bytes_;
  std::string name_;
  LlamaConfig config_;
  std::optional<TokenizerData> tokenizer_;
  std::string chat_template_;
  TensorMap tensors_;
  mutable std::once_flag digest_once_;
  mutable std::string digest_;
};

absl::StatusOr<std::unique_ptr<GgufFile>> Parse(const std::string& path,
                                                absl::Span<const uint8_t> bytes) {
  ASSIGN_OR_RETURN(const GgufContainer container, ParseGguf(bytes));
  auto file = std::make_unique<GgufFile>(path, bytes.size());
  RETURN_IF_ERROR(file->Init(container));
  return file;
}

absl::Status WithPath(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelFile>> OpenGgufFile(const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<MappedFile> mapping, MappedFile::Open(path));
  absl::StatusOr<std::unique_ptr<GgufFile>> file = Parse(path, mapping->bytes());
  if (!file.ok()) return WithPath(path, file.status());
  (*file)->Own(std::move(mapping));
  return *std::move(file);
}

absl::StatusOr<std::unique_ptr<ModelFile>> ParseGgufFile(const std::string& path,
                                                         absl::Span<const uint8_t> bytes) {
  absl::StatusOr<std::unique_ptr<GgufFile>> file = Parse(path, bytes);
  if (!file.ok()) return WithPath(path, file.status());
  return *std::move(file);
}

absl::StatusOr<TokenizerData> ReadGgufTokenizer(const std::string& path) {
  ASSIGN_OR_RETURN(const std::unique_ptr<MappedFile> mapping, MappedFile::Open(path));
  const absl::StatusOr<GgufContainer> container = ParseGguf(mapping->bytes());
  if (!container.ok()) return WithPath(path, container.status());
  absl::StatusOr<std::optional<TokenizerData>> data = GgufTokenizer(container->metadata);
  if (!data.ok()) return WithPath(path, data.status());
  if (!data->has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": tokenizer.ggml.tokens is missing"));
  }
  return **std::move(data);
}

}  // namespace baton::model
