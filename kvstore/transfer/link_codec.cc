#include "kvstore/transfer/link_codec.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace baton::kvstore {
namespace {

constexpr size_t kDigestBytes = 32;
constexpr size_t kNonceBytes = 32;
constexpr int kTransportsMax = 16;
// A (chunk, layer) is cut into ranges of about a MiB; the smallest block is 64 bytes.
constexpr int kRangeBlocksMax = 1 << 14;
// As many answers as a request may ask for, and as many alternatives a token, the chosen one included.
constexpr int kFirstTokensMax = 128;
constexpr int kTopMax = 21;
constexpr uint32_t kCodeMax = 16;  // UNAUTHENTICATED, the last google.rpc.Code.

absl::Status OutOfRange(absl::string_view field, uint64_t value, uint64_t low, uint64_t high) {
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", value, ", must be in [", low, ", ", high, "]"));
}

absl::Status CheckBytes(absl::string_view field, const std::string& value, size_t bytes) {
  if (value.size() == bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " has ", value.size(), " bytes, must have ", bytes));
}

absl::StatusOr<base::Id128> IdFromProto(absl::string_view field, const std::string& bytes) {
  RETURN_IF_ERROR(CheckBytes(field, bytes, 16));
  return base::Id128::FromBytes(bytes);
}

void KeyToProto(const HandoffKey& key, v1::RequestKey& proto) {
  proto.set_request_id(key.request_id.ToBytes());
  proto.set_attempt(key.attempt);
}

absl::StatusOr<HandoffKey> KeyFromProto(const v1::RequestKey& proto) {
  HandoffKey key;
  ASSIGN_OR_RETURN(key.request_id, IdFromProto("key.request_id", proto.request_id()));
  if (proto.attempt() == 0) return absl::InvalidArgumentError("key.attempt is 0, must be >= 1");
  key.attempt = proto.attempt();
  return key;
}

absl::Status ReasonFromProto(uint32_t code, const std::string& message) {
  const bool known = code <= kCodeMax;
  return absl::Status(known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
                      message);
}

template <typename Proto>
void ReasonToProto(const absl::Status& reason, Proto& proto) {
  proto.set_code(static_cast<uint32_t>(reason.code()));
  proto.set_message(std::string(reason.message()));
}

v1::KvType ToProto(kernels::KvType type) {
  switch (type) {
    case kernels::KvType::kF32: return v1::KV_TYPE_F32;
    case kernels::KvType::kF16: return v1::KV_TYPE_F16;
    case kernels::KvType::kBf16: return v1::KV_TYPE_BF16;
  }
  return v1::KV_TYPE_UNSPECIFIED;
}

absl::StatusOr<kernels::KvType> FromProto(v1::KvType type) {
  switch (type) {
    case v1::KV_TYPE_F32: return kernels::KvType::kF32;
    case v1::KV_TYPE_F16: return kernels::KvType::kF16;
    case v1::KV_TYPE_BF16: return kernels::KvType::kBf16;
    default: return OutOfRange("layout.kv_type", static_cast<uint64_t>(type), 1, 3);
  }
}

void CompatibilityToProto(const Compatibility& from, v1::Compatibility& proto) {
  proto.set_model_digest(from.model_digest);
  proto.set_numerics_class(from.numerics_class);
  proto.set_digest(from.Digest());
  v1::KvLayout& layout = *proto.mutable_layout();
  layout.set_layers(from.layout.layers);
  layout.set_kv_heads(from.layout.kv_heads);
  layout.set_head_dim(from.layout.head_dim);
  layout.set_block_tokens(from.layout.block_tokens);
  layout.set_kv_type(ToProto(from.layout.type));
  layout.set_order(kKvOrder);
  layout.set_tensor_parallel_size(1);
  layout.set_kv_head_end(from.layout.kv_heads);
}

absl::StatusOr<Compatibility> CompatibilityFromProto(const v1::Compatibility& proto) {
  Compatibility result;
  RETURN_IF_ERROR(CheckBytes("compatibility.model_digest", proto.model_digest(), kDigestBytes));
  result.model_digest = proto.model_digest();
  result.numerics_class = proto.numerics_class();
  const v1::KvLayout& layout = proto.layout();
  result.layout = {.layers = layout.layers(),
                   .kv_heads = layout.kv_heads(),
                   .head_dim = layout.head_dim(),
                   .block_tokens = layout.block_tokens()};
  ASSIGN_OR_RETURN(result.layout.type, FromProto(layout.kv_type()));
  RETURN_IF_ERROR(Validate(result.layout));
  if (layout.order() != kKvOrder) {
    return absl::FailedPreconditionError(absl::StrCat("incompatible workers: KV order is ", kKvOrder,
                                                      " here and ", layout.order(), " there"));
  }
  if (layout.tensor_parallel_rank() != 0 || layout.tensor_parallel_size() != 1) {
    return absl::FailedPreconditionError(absl::StrCat(
        "incompatible workers: tensor-parallel rank ", layout.tensor_parallel_rank(), " of ",
        layout.tensor_parallel_size(), ", must be 0 of 1"));
  }
  return result;
}

v1::KvTransportKind ToProto(TransportKind kind) {
  switch (kind) {
    case TransportKind::kLoopback: return v1::KV_TRANSPORT_KIND_LOOPBACK;
    case TransportKind::kShm: return v1::KV_TRANSPORT_KIND_SHM;
    case TransportKind::kGrpc: return v1::KV_TRANSPORT_KIND_GRPC;
  }
  return v1::KV_TRANSPORT_KIND_UNSPECIFIED;
}

// Nothing: a kind that a newer peer knows.
std::optional<TransportKind> FromProto(v1::KvTransportKind kind) {
  switch (kind) {
    case v1::KV_TRANSPORT_KIND_LOOPBACK: return TransportKind::kLoopback;
    case v1::KV_TRANSPORT_KIND_SHM: return TransportKind::kShm;
    case v1::KV_TRANSPORT_KIND_GRPC: return TransportKind::kGrpc;
    default: return std::nullopt;
  }
}

void FirstTokenToProto(const FirstToken& from, v1::FirstToken& proto) {
  proto.set_sample_index(from.sample_index);
  proto.set_token_id(from.token);
  if (!from.logprob.has_value()) return;
  v1::PositionLogprobs& logprobs = *proto.mutable_logprobs();
  logprobs.mutable_chosen()->set_token_id(from.token);
  logprobs.mutable_chosen()->set_logprob(*from.logprob);
  for (const auto& [token, logprob] : from.top) {
    v1::TokenLogprob& entry = *logprobs.add_top();
    entry.set_token_id(token);
    entry.set_logprob(logprob);
  }
}

absl::StatusOr<FirstToken> FirstTokenFromProto(const v1::FirstToken& proto) {
  FirstToken token = {.sample_index = proto.sample_index(), .token = proto.token_id()};
  if (!proto.has_logprobs()) return token;
  const v1::PositionLogprobs& logprobs = proto.logprobs();
  if (logprobs.top_size() > kTopMax) {
    return OutOfRange("first_tokens.logprobs.top", logprobs.top_size(), 0, kTopMax);
  }
  token.logprob = logprobs.chosen().logprob();
  for (const v1::TokenLogprob& entry : logprobs.top()) {
    token.top.emplace_back(entry.token_id(), entry.logprob());
  }
  return token;
}

void Encode(const OfferHandoff& offer, v1::OpenLinkRequest& request) {
  KeyToProto(offer.key, *request.mutable_offer()->mutable_key());
  request.mutable_offer()->set_tokens(offer.tokens);
}

void Encode(const AnnounceRange& range, v1::OpenLinkRequest& request) {
  v1::AnnounceRange& proto = *request.mutable_announce();
  KeyToProto(range.key, *proto.mutable_key());
  proto.set_layer(range.layer);
  proto.set_first_block(range.first_block);
  for (const KvBlockRef& block : range.blocks) {
    proto.add_block_ids(static_cast<uint32_t>(block.id));
    proto.add_generations(block.generation);
  }
  proto.set_checksum(range.checksum);
  proto.set_range_index(range.range_index);
}

void Encode(const SealHandoff& seal, v1::OpenLinkRequest& request) {
  v1::SealHandoff& proto = *request.mutable_seal();
  KeyToProto(seal.key, *proto.mutable_key());
  proto.set_range_count(seal.range_count);
  proto.set_tokens(seal.info.tokens);
  proto.set_last_block_digest(seal.info.last_block_digest);
  for (const FirstToken& token : seal.info.first_tokens) {
    FirstTokenToProto(token, *proto.add_first_tokens());
  }
}

void Encode(const AbortHandoff& abort, v1::OpenLinkRequest& request) {
  KeyToProto(abort.key, *request.mutable_abort()->mutable_key());
  ReasonToProto(abort.reason, *request.mutable_abort());
}

void Encode(const Heartbeat&, v1::OpenLinkRequest& request) { request.mutable_heartbeat(); }

void Encode(const AcceptHandoff& accept, v1::OpenLinkResponse& response) {
  KeyToProto(accept.key, *response.mutable_accept()->mutable_key());
}

void Encode(const AcknowledgeRange& acknowledge, v1::OpenLinkResponse& response) {
  KeyToProto(acknowledge.key, *response.mutable_acknowledge()->mutable_key());
  response.mutable_acknowledge()->set_range_index(acknowledge.range_index);
}

void Encode(const CompleteHandoff& complete, v1::OpenLinkResponse& response) {
  KeyToProto(complete.key, *response.mutable_complete()->mutable_key());
}

void Encode(const RefuseHandoff& refuse, v1::OpenLinkResponse& response) {
  KeyToProto(refuse.key, *response.mutable_refuse()->mutable_key());
  ReasonToProto(refuse.reason, *response.mutable_refuse());
}

absl::StatusOr<SourceMessage> Decode(const v1::OfferHandoff& proto) {
  OfferHandoff offer = {.tokens = proto.tokens()};
  ASSIGN_OR_RETURN(offer.key, KeyFromProto(proto.key()));
  return offer;
}

absl::StatusOr<SourceMessage> Decode(const v1::AnnounceRange& proto) {
  AnnounceRange range = {.range_index = proto.range_index(),
                         .layer = proto.layer(),
                         .first_block = proto.first_block(),
                         .checksum = proto.checksum()};
  ASSIGN_OR_RETURN(range.key, KeyFromProto(proto.key()));
  const int blocks = proto.block_ids_size();
  if (blocks < 1 || blocks > kRangeBlocksMax) {
    return OutOfRange("announce.block_ids", blocks, 1, kRangeBlocksMax);
  }
  if (proto.generations_size() != blocks) {
    return OutOfRange("announce.generations", proto.generations_size(), blocks, blocks);
  }
  range.blocks.reserve(blocks);
  for (int i = 0; i < blocks; ++i) {
    range.blocks.push_back({KvBlockId{proto.block_ids(i)}, proto.generations(i)});
  }
  return range;
}

absl::StatusOr<SourceMessage> Decode(const v1::SealHandoff& proto) {
  SealHandoff seal = {.range_count = proto.range_count()};
  ASSIGN_OR_RETURN(seal.key, KeyFromProto(proto.key()));
  seal.info.tokens = proto.tokens();
  if (!proto.last_block_digest().empty()) {
    RETURN_IF_ERROR(CheckBytes("seal.last_block_digest", proto.last_block_digest(), kDigestBytes));
  }
  seal.info.last_block_digest = proto.last_block_digest();
  if (proto.first_tokens_size() > kFirstTokensMax) {
    return OutOfRange("seal.first_tokens", proto.first_tokens_size(), 0, kFirstTokensMax);
  }
  for (const v1::FirstToken& entry : proto.first_tokens()) {
    ASSIGN_OR_RETURN(FirstToken token, FirstTokenFromProto(entry));
    seal.info.first_tokens.push_back(std::move(token));
  }
  return seal;
}

absl::StatusOr<SourceMessage> Decode(const v1::AbortHandoff& proto) {
  AbortHandoff abort = {.reason = ReasonFromProto(proto.code(), proto.message())};
  ASSIGN_OR_RETURN(abort.key, KeyFromProto(proto.key()));
  return abort;
}

}  // namespace

v1::OpenLinkRequest ToProto(const LinkHello& hello) {
  v1::OpenLinkRequest request;
  v1::LinkHello& proto = *request.mutable_hello();
  proto.set_incarnation(hello.incarnation.ToBytes());
  proto.set_peer_incarnation(hello.peer_incarnation.ToBytes());
  CompatibilityToProto(hello.compatibility, *proto.mutable_compatibility());
  for (const TransportKind kind : hello.transports) proto.add_transports(ToProto(kind));
  if (hello.shm.has_value()) {
    proto.mutable_shm()->set_boot_id(hello.shm->boot_id);
    proto.mutable_shm()->set_socket_name(hello.shm->socket_name);
    proto.mutable_shm()->set_nonce(hello.shm->nonce);
    proto.mutable_shm()->set_arena_bytes(hello.shm->arena_bytes);
  }
  proto.set_link_id(hello.link_id.ToBytes());
  return request;
}

v1::OpenLinkRequest ToProto(const SourceMessage& message) {
  v1::OpenLinkRequest request;
  std::visit([&](const auto& typed) { Encode(typed, request); }, message);
  return request;
}

v1::OpenLinkResponse ToProto(const LinkHelloReply& reply) {
  v1::OpenLinkResponse response;
  response.mutable_hello_reply()->set_incarnation(reply.incarnation.ToBytes());
  response.mutable_hello_reply()->set_transport(ToProto(reply.transport));
  return response;
}

v1::OpenLinkResponse ToProto(const SinkMessage& message) {
  v1::OpenLinkResponse response;
  std::visit([&](const auto& typed) { Encode(typed, response); }, message);
  return response;
}

absl::StatusOr<LinkHello> HelloFromProto(const v1::OpenLinkRequest& request) {
  if (!request.has_hello()) return absl::InvalidArgumentError("the first message is not hello");
  const v1::LinkHello& proto = request.hello();
  LinkHello hello;
  ASSIGN_OR_RETURN(hello.incarnation, IdFromProto("hello.incarnation", proto.incarnation()));
  ASSIGN_OR_RETURN(hello.peer_incarnation,
                   IdFromProto("hello.peer_incarnation", proto.peer_incarnation()));
  ASSIGN_OR_RETURN(hello.compatibility, CompatibilityFromProto(proto.compatibility()));
  ASSIGN_OR_RETURN(hello.link_id, IdFromProto("hello.link_id", proto.link_id()));
  if (proto.transports_size() > kTransportsMax) {
    return OutOfRange("hello.transports", proto.transports_size(), 0, kTransportsMax);
  }
  for (const int kind : proto.transports()) {
    const auto known = FromProto(static_cast<v1::KvTransportKind>(kind));
    if (known.has_value()) hello.transports.push_back(*known);
  }
  if (proto.has_shm()) {
    RETURN_IF_ERROR(CheckBytes("hello.shm.nonce", proto.shm().nonce(), kNonceBytes));
    hello.shm = ShmOffer{.boot_id = proto.shm().boot_id(),
                         .socket_name = proto.shm().socket_name(),
                         .nonce = proto.shm().nonce(),
                         .arena_bytes = proto.shm().arena_bytes()};
  }
  return hello;
}

absl::StatusOr<SourceMessage> SourceMessageFromProto(const v1::OpenLinkRequest& request) {
  switch (request.message_case()) {
    case v1::OpenLinkRequest::kOffer: return Decode(request.offer());
    case v1::OpenLinkRequest::kAnnounce: return Decode(request.announce());
    case v1::OpenLinkRequest::kSeal: return Decode(request.seal());
    case v1::OpenLinkRequest::kAbort: return Decode(request.abort());
    case v1::OpenLinkRequest::kHeartbeat: return Heartbeat{};
    case v1::OpenLinkRequest::kHello: return absl::InvalidArgumentError("hello came twice");
    case v1::OpenLinkRequest::MESSAGE_NOT_SET: break;
  }
  return absl::InvalidArgumentError("a message of the source is empty or unknown");
}

absl::StatusOr<LinkHelloReply> HelloReplyFromProto(const v1::OpenLinkResponse& response) {
  if (!response.has_hello_reply()) {
    return absl::InvalidArgumentError("the first message is not hello_reply");
  }
  LinkHelloReply reply;
  ASSIGN_OR_RETURN(reply.incarnation,
                   IdFromProto("hello_reply.incarnation", response.hello_reply().incarnation()));
  const auto transport = FromProto(response.hello_reply().transport());
  if (!transport.has_value()) {
    return OutOfRange("hello_reply.transport", response.hello_reply().transport(), 1, 3);
  }
  reply.transport = *transport;
  return reply;
}

absl::StatusOr<SinkMessage> SinkMessageFromProto(const v1::OpenLinkResponse& response) {
  switch (response.message_case()) {
    case v1::OpenLinkResponse::kAccept: {
      ASSIGN_OR_RETURN(const HandoffKey key, KeyFromProto(response.accept().key()));
      return AcceptHandoff{key};
    }
    case v1::OpenLinkResponse::kAcknowledge: {
      ASSIGN_OR_RETURN(const HandoffKey key, KeyFromProto(response.acknowledge().key()));
      return AcknowledgeRange{key, response.acknowledge().range_index()};
    }
    case v1::OpenLinkResponse::kComplete: {
      ASSIGN_OR_RETURN(const HandoffKey key, KeyFromProto(response.complete().key()));
      return CompleteHandoff{key};
    }
    case v1::OpenLinkResponse::kRefuse: {
      ASSIGN_OR_RETURN(const HandoffKey key, KeyFromProto(response.refuse().key()));
      return RefuseHandoff{
          key, ReasonFromProto(response.refuse().code(), response.refuse().message())};
    }
    case v1::OpenLinkResponse::kHelloReply:
      return absl::InvalidArgumentError("hello_reply came twice");
    case v1::OpenLinkResponse::MESSAGE_NOT_SET: break;
  }
  return absl::InvalidArgumentError("a message of the sink is empty or unknown");
}

}  // namespace baton::kvstore
