#include "model/weights/model_digest.h"

#include <cstdint>
#include <cstring>
#include <memory>

#include "base/check.h"
#include "openssl/evp.h"

namespace baton::model {
namespace {

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    CHECK(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
  }

  void Bytes(const void* data, uint64_t size) {
    Uint(size);
    CHECK(EVP_DigestUpdate(context_.get(), data, size) == 1);
  }
  void Text(absl::string_view text) { Bytes(text.data(), text.size()); }
  void Uint(uint64_t value) {
    CHECK(EVP_DigestUpdate(context_.get(), &value, sizeof(value)) == 1);
  }
  void Float(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    Uint(bits);
  }

  std::string Finish() {
    std::string digest(32, '\0');
    unsigned int size = 0;
    CHECK(EVP_DigestFinal_ex(context_.get(), reinterpret_cast<uint8_t*>(digest.data()), &size) == 1);
    CHECK_EQ(size, digest.size());
    return digest;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

void AddRope(const RopeConfig& rope, Sha256& hash) {
  hash.Float(rope.theta);
  hash.Uint(rope.dimensions);
  hash.Uint(static_cast<uint64_t>(rope.scaling));
  hash.Float(rope.factor);
  hash.Uint(rope.original_context_tokens);
  hash.Float(rope.beta_fast);
  hash.Float(rope.beta_slow);
  hash.Uint(rope.attention_factor.has_value());
  hash.Float(rope.attention_factor.value_or(0));
  hash.Float(rope.low_frequency_factor);
  hash.Float(rope.high_frequency_factor);
}

void AddConfig(const LlamaConfig& config, Sha256& hash) {
  hash.Text("baton model 1");
  hash.Text(config.architecture);
  hash.Uint(config.vocabulary_size);
  hash.Uint(config.context_tokens);
  hash.Uint(config.layers);
  hash.Uint(config.hidden);
  hash.Uint(config.feed_forward);
  hash.Uint(config.heads);
  hash.Uint(config.kv_heads);
  hash.Uint(config.head_dim);
  hash.Float(config.rms_epsilon);
  AddRope(config.rope, hash);
  hash.Uint(config.tied_embeddings);
  hash.Uint(config.end_of_sequence_ids.size());
  for (const uint32_t id : config.end_of_sequence_ids) hash.Uint(id);
}

}  // namespace

std::string ModelDigest(const LlamaConfig& config, const TensorMap& tensors) {
  Sha256 hash;
  AddConfig(config, hash);
  hash.Uint(tensors.size());
  for (const auto& [name, view] : tensors) {
    hash.Text(name);
    hash.Text(kernels::TensorTypeName(view.type));
    hash.Uint(view.rows);
    hash.Uint(view.columns);
    hash.Bytes(view.data, view.bytes());
  }
  return hash.Finish();
}

}  // namespace baton::model
