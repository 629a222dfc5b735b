#include "model/weights/safetensors_file.h"

#include <cstring>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "model/weights/hf_config.h"
#include "model/weights/llama_tensors.h"
#include "model/weights/mapped_file.h"
#include "model/weights/model_digest.h"
#include "model/weights/safetensors_header.h"

namespace baton::model {
namespace {

using kernels::TensorView;

constexpr uint64_t kConfigBytesMax = 256 << 10;
constexpr uint64_t kIndexBytesMax = 2 << 20;
constexpr int kIndexDepthMax = 3;
constexpr size_t kShardsMax = 1024;

// A file beside config.json, never one elsewhere.
bool IsPlainFileName(const std::string& name) {
  return !name.empty() && name.find('/') == std::string::npos && name != "." && name != "..";
}

// Tensor name to shard, or nothing when there is no index.
using ShardOf = absl::flat_hash_map<std::string, std::string>;

absl::StatusOr<ShardOf> ParseIndex(const std::string& text) {
  ASSIGN_OR_RETURN(const nlohmann::json index,
                   ParseJsonObject(text, "model.safetensors.index.json", kIndexDepthMax));
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object() || map->empty()) {
    return absl::InvalidArgumentError("model.safetensors.index.json has no weight_map");
  }
  ShardOf shard_of;
  for (const auto& [tensor, shard] : map->items()) {
    if (!shard.is_string() || !IsPlainFileName(shard.get_ref<const std::string&>())) {
      return absl::InvalidArgumentError(absl::StrCat(
          "weight_map: the shard of ", tensor, " is not the name of a file in the folder"));
    }
    shard_of.emplace(tensor, shard.get_ref<const std::string&>());
  }
  return shard_of;
}

// HF rotates (i, i + D/2), GGUF and our kernels (2i, 2i + 1): row h*D + 2i + j is HF's row h*D + j*D/2 + i.
// `view` [heads * head_dim, columns], or a bias [1, heads * head_dim].
std::vector<uint8_t> InterleaveRows(const TensorView& view, uint32_t head_dim) {
  const bool bias = view.rows == 1;
  const uint64_t rows = bias ? view.columns : view.rows;
  const uint64_t row_bytes = view.bytes() / rows;
  const uint64_t half = head_dim / 2;
  std::vector<uint8_t> result(view.bytes());
  for (uint64_t row = 0; row < rows; ++row) {
    const uint64_t head_start = row / head_dim * head_dim;
    const uint64_t in_head = row % head_dim;
    const uint64_t from = head_start + in_head % 2 * half + in_head / 2;
    std::memcpy(&result[row * row_bytes], view.data + from * row_bytes, row_bytes);
  }
  return result;
}

bool HoldsRotatedRows(absl::string_view gguf_name) {
  return absl::StrContains(gguf_name, ".attn_q.") || absl::StrContains(gguf_name, ".attn_k.");
}

// Old checkpoints store the RoPE frequencies, which follow from the configuration.
bool IsDerived(absl::string_view name) {
  return absl::EndsWith(name, ".self_attn.rotary_emb.inv_freq");
}

class SafetensorsFile final : public ModelFile {
 public:
  explicit SafetensorsFile(std::string folder) : path_(std::move(folder)) {}

  absl::Status Init() {
    RETURN_IF_ERROR(ReadConfig());
    RETURN_IF_ERROR(MapShards());
    RETURN_IF_ERROR(CheckLlamaTensors(config_, tensors_));
    InterleaveAll();
    const std::string folder = path_.substr(0, path_.find_last_not_of('/') + 1);
    name_ = folder.substr(folder.find_last_of('/') + 1);
    return absl::OkStatus();
  }

  const std::string& path() const override { return path_; }
  const std::string& name() const override { return name_; }
  const LlamaConfig& config() const override { return config_; }
  const TokenizerData* tokenizer() const override { return nullptr; }
  const std::string& chat_template() const override { return chat_template_; }
  TensorView tensor(absl::string_view gguf_name) const override {
    const auto found = tensors_.find(gguf_name);
    return found == tensors_.end() ? TensorView{} : found->second;
  }
  const std::string& digest() const override {
    std::call_once(digest_once_, [this] { digest_ = ModelDigest(config_, tensors_); });
    return digest_;
  }
  uint64_t file_bytes() const override { return file_bytes_; }

 private:
  absl::Status ReadConfig() {
    ASSIGN_OR_RETURN(const std::string config, ReadTextFile(path_ + "/config.json", kConfigBytesMax));
    absl::StatusOr<std::string> generation =
        ReadTextFile(path_ + "/generation_config.json", kConfigBytesMax);
    if (absl::IsNotFound(generation.status())) generation = std::string();
    if (!generation.ok()) return generation.status();
    ASSIGN_OR_RETURN(config_, ParseHfConfig(config, *generation));
    return absl::OkStatus();
  }

  absl::Status MapShards() {
    const absl::StatusOr<std::string> index =
        ReadTextFile(path_ + "/model.safetensors.index.json", kIndexBytesMax);
    if (absl::IsNotFound(index.status())) return MapShard("model.safetensors", nullptr);
    if (!index.ok()) return index.status();

    ASSIGN_OR_RETURN(const ShardOf shard_of, ParseIndex(*index));
    std::set<std::string> shards;
    for (const auto& [tensor, shard] : shard_of) shards.insert(shard);
    if (shards.size() > kShardsMax) {
      return absl::InvalidArgumentError(absl::StrCat("weight_map names ", shards.size(),
                                                     " shards, must name at most ", kShardsMax));
    }
    size_t before = 0;
    for (const std::string& shard : shards) {
      RETURN_IF_ERROR(MapShard(shard, &shard_of));
      before = tensor_count_;
    }
    if (before != shard_of.size()) {
      return absl::InvalidArgumentError(absl::StrCat("weight_map names ", shard_of.size(),
                                                     " tensors, the shards have ", before));
    }
    return absl::OkStatus();
  }

  // `shard_of`: where the index says that each tensor is; null without an index.
  absl::Status MapShard(const std::string& shard, const ShardOf* shard_of) {
    ASSIGN_OR_RETURN(std::unique_ptr<MappedFile> mapping, MappedFile::Open(path_ + "/" + shard));
    absl::StatusOr<std::vector<SafetensorsEntry>> entries = ParseSafetensors(mapping->bytes());
    if (!entries.ok()) {
      return absl::Status(entries.status().code(),
                          absl::StrCat(shard, ": ", entries.status().message()));
    }
    for (const SafetensorsEntry& entry : *entries) {
      if (shard_of != nullptr) {
        const auto listed = shard_of->find(entry.name);
        if (listed == shard_of->end() || listed->second != shard) {
          return absl::InvalidArgumentError(absl::StrCat(
              "tensor ", entry.name, " is in ", shard, ", where weight_map does not have it"));
        }
      }
      RETURN_IF_ERROR(AddTensor(entry));
    }
    tensor_count_ += entries->size();
    file_bytes_ += mapping->bytes().size();
    mappings_.push_back(std::move(mapping));
    return absl::OkStatus();
  }

  absl::Status AddTensor(const SafetensorsEntry& entry) {
    if (IsDerived(entry.name)) return absl::OkStatus();
    // As transformers does: a tied model's head is its embeddings, whatever the file says.
    if (config_.tied_embeddings && entry.name == "lm_head.weight") return absl::OkStatus();
    const std::optional<std::string> gguf_name = GgufNameOf(entry.name);
    if (!gguf_name.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", entry.name, " is not part of a Llama"));
    }
    if (!tensors_.emplace(*gguf_name, entry.view).second) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", entry.name, " occurs twice"));
    }
    return absl::OkStatus();
  }

  void InterleaveAll() {
    for (auto& [name, view] : tensors_) {
      if (!HoldsRotatedRows(name)) continue;
      interleaved_.push_back(InterleaveRows(view, config_.head_dim));
      view.data = interleaved_.back().data();
    }
  }

  std::string path_;
  std::string name_;
  std::string chat_template_;  // Always empty: its file is not read.
  LlamaConfig config_;
  std::vector<std::unique_ptr<MappedFile>> mappings_;
  std::vector<std::vector<uint8_t>> interleaved_;
  TensorMap tensors_;
  size_t tensor_count_ = 0;  // Of the shards mapped so far.
  uint64_t file_bytes_ = 0;
  mutable std::once_flag digest_once_;
  mutable std::string digest_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ModelFile>> OpenSafetensorsFolder(const std::string& folder) {
  auto file = std::make_unique<SafetensorsFile>(folder);
  if (const absl::Status status = file->Init(); !status.ok()) {
    return absl::Status(status.code(), absl::StrCat(folder, ": ", status.message()));
  }
  return file;
}

}  // namespace baton::model
