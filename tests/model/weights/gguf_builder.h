// Writes GGUF files, well-formed or not, for tests and fuzz seeds.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace baton::model {

class GgufBuilder {
 public:
  uint32_t version = 3;
  std::string magic = "GGUF";
  uint64_t alignment = 32;

  GgufBuilder& Uint32(absl::string_view key, uint32_t value) { return Add(key, 4, Raw(value)); }
  GgufBuilder& Float(absl::string_view key, float value) { return Add(key, 6, Raw(value)); }
  GgufBuilder& Bool(absl::string_view key, bool value) { return Add(key, 7, Raw(uint8_t{value})); }
  GgufBuilder& String(absl::string_view key, absl::string_view value) { return Add(key, 8, Text(value)); }
  GgufBuilder& Strings(absl::string_view key, const std::vector<std::string>& values) {
    std::string body = Raw(uint32_t{8}) + Raw(uint64_t{values.size()});
    for (const std::string& value : values) body += Text(value);
    return Add(key, 9, body);
  }
  GgufBuilder& Int32s(absl::string_view key, const std::vector<int32_t>& values) {
    std::string body = Raw(uint32_t{5}) + Raw(uint64_t{values.size()});
    for (const int32_t value : values) body += Raw(value);
    return Add(key, 9, body);
  }
  // A value of any type number with any bytes.
  GgufBuilder& Add(absl::string_view key, uint32_t type, absl::string_view value) {
    metadata_ += Text(key) + Raw(type) + std::string(value);
    ++metadata_count_;
    return *this;
  }

  // `dims` fastest first; the bytes are appended at the next aligned place.
  GgufBuilder& Tensor(absl::string_view name, const std::vector<uint64_t>& dims, uint32_t type,
                      absl::string_view bytes) {
    data_.resize((data_.size() + alignment - 1) / alignment * alignment);
    TensorAt(name, dims, type, data_.size());
    data_ += std::string(bytes);
    return *this;
  }
  // A directory entry alone.
  GgufBuilder& TensorAt(absl::string_view name, const std::vector<uint64_t>& dims, uint32_t type,
                        uint64_t offset) {
    directory_ += Text(name) + Raw(static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims) directory_ += Raw(dim);
    directory_ += Raw(type) + Raw(offset);
    ++tensor_count_;
    return *this;
  }
  GgufBuilder& TensorCount(uint64_t count) { tensor_count_ = count; return *this; }
  GgufBuilder& MetadataCount(uint64_t count) { metadata_count_ = count; return *this; }

  std::string Build() const {
    std::string file = magic + Raw(version) + Raw(tensor_count_) + Raw(metadata_count_) + metadata_ + directory_;
    file.resize((file.size() + alignment - 1) / alignment * alignment);
    return file + data_;
  }

  template <typename T>
  static std::string Raw(T value) {
    std::string bytes(sizeof(T), '\0');
    std::memcpy(bytes.data(), &value, sizeof(T));
    return bytes;
  }
  static std::string Text(absl::string_view text) {
    return Raw(uint64_t{text.size()}) + std::string(text);
  }

 private:
  std::string metadata_, directory_, data_;
  uint64_t metadata_count_ = 0;
  uint64_t tensor_count_ = 0;
};

inline constexpr uint32_t kTinyHidden = 32;
inline constexpr uint32_t kTinyFeedForward = 64;
inline constexpr uint32_t kTinyVocabulary = 4;

// What a Llama of one layer, 2 heads of 16 and one KV head must say of itself.
inline GgufBuilder TinyLlamaSizes() {
  GgufBuilder builder;
  builder.String("general.architecture", "llama")
      .Uint32("llama.context_length", 64)
      .Uint32("llama.block_count", 1)
      .Uint32("llama.embedding_length", kTinyHidden)
      .Uint32("llama.feed_forward_length", kTinyFeedForward)
      .Uint32("llama.attention.head_count", 2)
      .Uint32("llama.attention.head_count_kv", 1);
  return builder;
}

// The same with a tokenizer of 4 tokens and all the rest.
inline GgufBuilder TinyLlamaMetadata() {
  GgufBuilder builder = TinyLlamaSizes();
  builder.String("general.name", "tiny")
      .Float("llama.attention.layer_norm_rms_epsilon", 1e-5f)
      .Float("llama.rope.freq_base", 10000.0f)
      .String("tokenizer.ggml.model", "gpt2")
      .String("tokenizer.ggml.pre", "smollm")
      .Strings("tokenizer.ggml.tokens", {"a", "b", "ab", "<end>"})
      .Int32s("tokenizer.ggml.token_type", {1, 1, 1, 3})
      .Strings("tokenizer.ggml.merges", {"a b"})
      .Uint32("tokenizer.ggml.eos_token_id", 3)
      .String("tokenizer.chat_template", "{{ messages[0].content }}");
  return builder;
}

struct TinyTensor {
  std::string name;
  std::vector<uint64_t> dims;
};

inline std::vector<TinyTensor> TinyLlamaTensors() {
  constexpr uint64_t kKvRows = 16;
  return {
      {"token_embd.weight", {kTinyHidden, kTinyVocabulary}},
      {"output_norm.weight", {kTinyHidden}},
      {"blk.0.attn_norm.weight", {kTinyHidden}},
      {"blk.0.attn_q.weight", {kTinyHidden, kTinyHidden}},
      {"blk.0.attn_k.weight", {kTinyHidden, kKvRows}},
      {"blk.0.attn_v.weight", {kTinyHidden, kKvRows}},
      {"blk.0.attn_output.weight", {kTinyHidden, kTinyHidden}},
      {"blk.0.ffn_norm.weight", {kTinyHidden}},
      {"blk.0.ffn_gate.weight", {kTinyHidden, kTinyFeedForward}},
      {"blk.0.ffn_up.weight", {kTinyHidden, kTinyFeedForward}},
      {"blk.0.ffn_down.weight", {kTinyFeedForward, kTinyHidden}},
  };
}

// F32 tensors, all elements 0.5, but for those named `without`.
inline GgufBuilder& AddTinyTensors(GgufBuilder& builder, absl::string_view without = "") {
  for (const TinyTensor& tensor : TinyLlamaTensors()) {
    if (tensor.name == without) continue;
    uint64_t elements = 1;
    for (const uint64_t dim : tensor.dims) elements *= dim;
    std::string bytes;
    for (uint64_t i = 0; i < elements; ++i) bytes += GgufBuilder::Raw(0.5f);
    builder.Tensor(tensor.name, tensor.dims, 0, bytes);
  }
  return builder;
}

inline std::string TinyLlamaFile() {
  GgufBuilder builder = TinyLlamaMetadata();
  return AddTinyTensors(builder).Build();
}

}  // namespace baton::model
