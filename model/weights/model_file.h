// A model on disk, opened and checked: a GGUF file, or a folder with config.json and *.safetensors.
//
// Every count, offset and size is checked against the file before it is used; a hostile file gives an error, never a
// crash, and never more than 64 MiB of memory beyond the mapping and the q and k rows of safetensors. Tensors are views into the mapping and live as long as
// the ModelFile. Immutable after Open(): any thread may read.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/tensor_view.h"
#include "model/llama/llama_config.h"

namespace baton::model {

// What a GGUF file says of its tokenizer; see tokenizer/tokenizer.h.
struct TokenizerData {
  std::string model;                     // tokenizer.ggml.model: "gpt2"
  std::string pre;                       // tokenizer.ggml.pre: "smollm", "llama-bpe", "qwen2", …; may be empty.
  std::vector<std::string> tokens;       // Indexed by id, in the file's own spelling (byte-level alphabet).
  std::vector<uint32_t> types;           // Indexed by id: 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte.
  std::vector<std::string> merges;       // "left right", best first.
  std::optional<uint32_t> bos_id, eos_id, eot_id, unknown_id, padding_id;
  std::optional<bool> add_bos, add_eos;  // Absent in the file: what its pre-tokenizer's family does.
};

class ModelFile {
 public:
  // `path` names a .gguf file or a folder with config.json. NOT_FOUND: no such file. INVALID_ARGUMENT: malformed, or of a
  // kind that is not supported; the message names the tensor, key or offset, the value, and what is legal.
  static absl::StatusOr<std::unique_ptr<ModelFile>> Open(const std::string& path);

  virtual ~ModelFile() = default;

  virtual const std::string& path() const = 0;
  virtual const std::string& name() const = 0;  // general.name, or the file's or folder's name.
  virtual const LlamaConfig& config() const = 0;
  virtual const TokenizerData* tokenizer() const = 0;    // Null: none (safetensors).
  virtual const std::string& chat_template() const = 0;  // Empty: none.

  // A tensor by its GGUF name ("token_embd.weight", "blk.0.attn_q.weight", "blk.0.attn_q.bias", "output_norm.weight",
  // "output.weight", "rope_freqs.weight"), whatever the file itself calls it. Vectors have rows == 1. An absent tensor is
  // an empty view. Rows of q and k are in interleaved RoPE order, as GGUF stores them (safetensors are permuted here).
  virtual kernels::TensorView tensor(absl::string_view gguf_name) const = 0;

  // SHA-256 over everything that decides results (metadata that the model reads, tensor names, types, shapes and bytes);
  // 32 raw bytes. Computed on first use, about 0.1 s for 100 MB. Thread-safe.
  virtual const std::string& digest() const = 0;

  virtual uint64_t file_bytes() const = 0;
};

}  // namespace baton::model
