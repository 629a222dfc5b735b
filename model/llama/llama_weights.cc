#include "model/llama/llama_weights.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "model/llama/packed_file.h"

namespace baton::model {
namespace {

using kernels::MatrixSource;
using kernels::PackedMatrix;
using kernels::RowOrder;
using kernels::TensorView;

constexpr size_t kDigestDigitsInName = 32;

std::string LayerTensor(uint32_t layer, const char* suffix) {
  return absl::StrCat("blk.", layer, ".", suffix);
}

// Norms and biases: short, kept as f32. Empty for an absent tensor.
std::vector<float> ReadVector(const ModelFile& file, const std::string& name) {
  const TensorView view = file.tensor(name);
  if (view.empty()) return {};
  std::vector<float> values(view.columns);
  kernels::DequantizeRow(view, 0, absl::MakeSpan(values));
  return values;
}

// Biases of stacked matrices, one after another; zeros for those without, empty if there is none at all.
std::vector<float> ReadBiases(const ModelFile& file, uint32_t layer,
                              std::initializer_list<std::pair<const char*, uint64_t>> parts) {
  std::vector<float> stacked;
  bool any = false;
  for (const auto& [suffix, size] : parts) {
    std::vector<float> bias = ReadVector(file, LayerTensor(layer, suffix));
    any |= !bias.empty();
    bias.resize(size);
    stacked.insert(stacked.end(), bias.begin(), bias.end());
  }
  return any ? stacked : std::vector<float>();
}

// One matrix of the model: what it is made of, and where its packed form is to be found.
struct PlannedMatrix {
  std::string name;
  MatrixSource source;
  PackedMatrix* target;
  uint64_t offset = 0;  // Into the packed bytes.
  uint64_t bytes = 0;
};

// In the order in which a step reads them: the packed bytes stream from front to back.
std::vector<PlannedMatrix> PlanMatrices(const ModelFile& file, LlamaWeights& weights) {
  std::vector<PlannedMatrix> plan;
  const auto add = [&](std::string name, std::vector<std::string> tensors, RowOrder order,
                       PackedMatrix& target) {
    PlannedMatrix matrix = {.name = std::move(name), .target = &target};
    matrix.source.order = order;
    for (const std::string& tensor : tensors) matrix.source.tensors.push_back(file.tensor(tensor));
    plan.push_back(std::move(matrix));
  };
  for (uint32_t i = 0; i < weights.layers.size(); ++i) {
    LlamaLayer& layer = weights.layers[i];
    add(LayerTensor(i, "attn_{q,k,v}.weight"),
        {LayerTensor(i, "attn_q.weight"), LayerTensor(i, "attn_k.weight"),
         LayerTensor(i, "attn_v.weight")},
        RowOrder::kStacked, layer.qkv);
    add(LayerTensor(i, "attn_output.weight"), {LayerTensor(i, "attn_output.weight")},
        RowOrder::kStacked, layer.attention_output);
    add(LayerTensor(i, "ffn_{gate,up}.weight"),
        {LayerTensor(i, "ffn_gate.weight"), LayerTensor(i, "ffn_up.weight")}, RowOrder::kGateUp,
        layer.gate_up);
    add(LayerTensor(i, "ffn_down.weight"), {LayerTensor(i, "ffn_down.weight")}, RowOrder::kStacked,
        layer.down);
  }
  const std::string head =
      file.config().tied_embeddings ? "token_embd.weight" : "output.weight";
  add(head, {head}, RowOrder::kStacked, weights.head);
  return plan;
}

// Sets offsets; returns the bytes in all.
absl::StatusOr<uint64_t> PlaceMatrices(kernels::PackedLayout layout,
                                       std::vector<PlannedMatrix>& plan) {
  uint64_t offset = 0;
  for (PlannedMatrix& matrix : plan) {
    if (const absl::Status status = kernels::Validate(matrix.source); !status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(matrix.name, ": ", status.message()));
    }
    matrix.offset = offset;
    matrix.bytes = kernels::PackedBytes(matrix.source, layout);
    offset += matrix.bytes;
  }
  return offset;
}

absl::Status OpenMatrices(absl::Span<const uint8_t> packed,
                          const std::vector<PlannedMatrix>& plan) {
  for (const PlannedMatrix& matrix : plan) {
    ASSIGN_OR_RETURN(*matrix.target,
                     PackedMatrix::Open(packed.subspan(matrix.offset, matrix.bytes)));
  }
  return absl::OkStatus();
}

std::string PackedFilePath(const ModelFile& file, const LoadWeightsArgs& args) {
  const std::string digest =
      absl::BytesToHexString(file.digest()).substr(0, kDigestDigitsInName);
  return absl::StrCat(args.cache_folder, "/", digest, "-",
                      std::string(kernels::PackedLayoutName(args.layout)), "-r",
                      kernels::kPackingRevision, ".packed");
}

void PackAll(const std::vector<PlannedMatrix>& plan, kernels::PackedLayout layout,
             absl::Span<uint8_t> packed, kernels::KernelContext& context) {
  context.ForEachTile(static_cast<uint32_t>(plan.size()), [&](uint32_t tile, uint32_t) {
    const PlannedMatrix& matrix = plan[tile];
    kernels::Pack(matrix.source, layout, packed.subspan(matrix.offset, matrix.bytes));
  });
}

// Fills `packed` and opens the matrices in it; returns where the bytes came from.
absl::StatusOr<std::string> FillPacked(const ModelFile& file, const LoadWeightsArgs& args,
                                       const std::vector<PlannedMatrix>& plan,
                                       absl::Span<uint8_t> packed,
                                       kernels::KernelContext& context) {
  const std::string path = args.cache_folder.empty() ? "" : PackedFilePath(file, args);
  std::string why_not_read;
  if (!path.empty()) {
    absl::Status read = ReadPackedFile(path, packed);
    if (read.ok()) read = OpenMatrices(packed, plan);
    if (read.ok()) return absl::StrCat("read from ", path);
    if (!absl::IsNotFound(read)) why_not_read = absl::StrCat(" (", read.message(), ")");
  }
  std::fill(packed.begin(), packed.end(), uint8_t{0});
  PackAll(plan, args.layout, packed, context);
  RETURN_IF_ERROR(OpenMatrices(packed, plan));
  if (path.empty()) return std::string("packed now, not kept");

  const absl::Status kept = WritePackedFile(path, packed);
  return absl::StrCat("packed now", why_not_read,
                      kept.ok() ? absl::StrCat(", kept in ", path)
                                : absl::StrCat(", not kept: ", kept.message()));
}

LlamaLayer ReadVectors(const ModelFile& file, uint32_t index) {
  const LlamaConfig& config = file.config();
  const uint64_t q = uint64_t{config.heads} * config.head_dim;
  const uint64_t kv = uint64_t{config.kv_heads} * config.head_dim;
  LlamaLayer layer;
  layer.attention_norm = ReadVector(file, LayerTensor(index, "attn_norm.weight"));
  layer.feed_forward_norm = ReadVector(file, LayerTensor(index, "ffn_norm.weight"));
  layer.qkv_bias = ReadBiases(
      file, index, {{"attn_q.bias", q}, {"attn_k.bias", kv}, {"attn_v.bias", kv}});
  layer.attention_output_bias = ReadBiases(file, index, {{"attn_output.bias", config.hidden}});
  layer.gate_up_bias = ReadBiases(
      file, index, {{"ffn_gate.bias", config.feed_forward}, {"ffn_up.bias", config.feed_forward}});
  layer.down_bias = ReadBiases(file, index, {{"ffn_down.bias", config.hidden}});
  return layer;
}

}  // namespace

absl::StatusOr<LlamaWeights> LoadWeights(const ModelFile& file, const LoadWeightsArgs& args,
                                         kernels::KernelContext& context) {
  LlamaWeights weights;
  weights.embeddings = file.tensor("token_embd.weight");
  weights.output_norm = ReadVector(file, "output_norm.weight");
  weights.rope_factors = ReadVector(file, "rope_freqs.weight");
  for (uint32_t i = 0; i < file.config().layers; ++i) {
    weights.layers.push_back(ReadVectors(file, i));
  }
  std::vector<PlannedMatrix> plan = PlanMatrices(file, weights);
  ASSIGN_OR_RETURN(const uint64_t bytes, PlaceMatrices(args.layout, plan));
  weights.packed = kernels::Buffer(bytes);
  ASSIGN_OR_RETURN(weights.origin,
                   FillPacked(file, args, plan, {weights.packed.data(), bytes}, context));
  return weights;
}

}  // namespace baton::model
