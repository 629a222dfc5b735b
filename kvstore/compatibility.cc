#include "kvstore/compatibility.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "kvstore/canonical_bytes.h"

namespace baton::kvstore {
namespace {

absl::Status Differs(absl::string_view field, absl::string_view ours, absl::string_view theirs) {
  return absl::FailedPreconditionError(
      absl::StrCat("incompatible workers: ", field, " is ", ours, " here and ", theirs, " there"));
}

absl::Status CheckEqual(absl::string_view field, uint64_t ours, uint64_t theirs) {
  if (ours == theirs) return absl::OkStatus();
  return Differs(field, absl::StrCat(ours), absl::StrCat(theirs));
}

absl::string_view Name(kernels::KvType type) {
  switch (type) {
    case kernels::KvType::kF32: return "f32";
    case kernels::KvType::kF16: return "f16";
    case kernels::KvType::kBf16: return "bf16";
  }
  return "unknown";
}

}  // namespace

std::string Compatibility::Digest() const {
  CanonicalBytes all("baton.compatibility.v1");
  all.AddString(model_digest).AddString(numerics_class);
  all.Add32(layout.layers).Add32(layout.kv_heads).Add32(layout.head_dim).Add32(layout.block_tokens);
  all.Add32(static_cast<uint32_t>(layout.type)).AddString(kKvOrder);
  return all.Sha256();
}

absl::Status CheckCompatible(const Compatibility& ours, const Compatibility& theirs) {
  if (ours.model_digest != theirs.model_digest) {
    return Differs("model digest", absl::BytesToHexString(ours.model_digest),
                   absl::BytesToHexString(theirs.model_digest));
  }
  if (ours.numerics_class != theirs.numerics_class) {
    return Differs("numerics class", ours.numerics_class, theirs.numerics_class);
  }
  const kernels::KvLayout& a = ours.layout;
  const kernels::KvLayout& b = theirs.layout;
  if (absl::Status s = CheckEqual("layers", a.layers, b.layers); !s.ok()) return s;
  if (absl::Status s = CheckEqual("kv_heads", a.kv_heads, b.kv_heads); !s.ok()) return s;
  if (absl::Status s = CheckEqual("head_dim", a.head_dim, b.head_dim); !s.ok()) return s;
  if (absl::Status s = CheckEqual("block_tokens", a.block_tokens, b.block_tokens); !s.ok()) return s;
  if (a.type != b.type) return Differs("KV type", Name(a.type), Name(b.type));
  return absl::OkStatus();
}

}  // namespace baton::kvstore
