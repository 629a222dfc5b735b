#include "worker/event_codec.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace baton::worker {
namespace {

constexpr size_t kAddressBytesMax = 256;
constexpr int64_t kDurationSecondsMax = 315'576'000'000;  // As protobuf defines Duration.

absl::Status Invalid(absl::string_view field, absl::string_view is, absl::string_view must) {
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", is, ", must be ", must));
}

// `at` names the element in the message.
absl::Status CheckTokens(absl::string_view field,
                         const google::protobuf::RepeatedField<uint32_t>& ids,
                         uint32_t vocabulary_size) {
  for (int i = 0; i < ids.size(); ++i) {
    if (ids[i] < vocabulary_size) continue;
    return Invalid(absl::StrCat(field, "[", i, "]"), absl::StrCat(ids[i]),
                   absl::StrCat("in [0, ", vocabulary_size - 1, "]"));
  }
  return absl::OkStatus();
}

absl::Status CheckLengths(const v1::EngineRequest& wire, const RequestLimits& limits) {
  const uint64_t tokens = static_cast<uint64_t>(wire.tokens_size());
  if (tokens == 0 || tokens > limits.context_tokens) {
    return Invalid("tokens", absl::StrCat(tokens, " long"),
                   absl::StrCat("in [1, ", limits.context_tokens, "]"));
  }
  const uint64_t output_start = wire.output_start();
  if (output_start == 0 || output_start > tokens) {
    return Invalid("output_start", absl::StrCat(output_start),
                   absl::StrCat("in [1, ", tokens, "], the number of tokens"));
  }
  const uint64_t drawn = tokens - output_start;
  const uint64_t room = limits.context_tokens - output_start;
  if (wire.max_tokens() <= drawn || wire.max_tokens() > room) {
    return Invalid("max_tokens", absl::StrCat(wire.max_tokens()),
                   absl::StrCat("in [", drawn + 1, ", ", room, "]: the context has ",
                                limits.context_tokens, " tokens, the prompt ", output_start));
  }
  return absl::OkStatus();
}

absl::Status CheckUnserved(const v1::EngineRequest& wire) {
  if (!wire.adapter_digest().empty()) {
    return Invalid("adapter_digest", "set", "empty: adapters are not served");
  }
  if (!wire.grammar_digest().empty()) {
    return Invalid("grammar_digest", "set", "empty: grammars are not served");
  }
  if (wire.priority() != 0) return Invalid("priority", absl::StrCat(wire.priority()), "0");
  return absl::OkStatus();
}

absl::Status CheckBounds(const v1::EngineRequest& wire) {
  if (wire.stop_token_ids_size() > static_cast<int>(kStopTokenIdsMax)) {
    return Invalid("stop_token_ids", absl::StrCat(wire.stop_token_ids_size(), " long"),
                   absl::StrCat("at most ", kStopTokenIdsMax));
  }
  if (wire.sample_index() > kSampleIndexMax) {
    return Invalid("sample_index", absl::StrCat(wire.sample_index()),
                   absl::StrCat("in [0, ", kSampleIndexMax, "]"));
  }
  if (wire.cache_salt().size() > kCacheSaltBytesMax) {
    return Invalid("cache_salt", absl::StrCat(wire.cache_salt().size(), " bytes"),
                   absl::StrCat("at most ", kCacheSaltBytesMax));
  }
  return absl::OkStatus();
}

absl::Status CheckPromptLogprobs(const v1::EngineRequest& wire) {
  if (!wire.logprob_options().has_prompt_logprobs()) return absl::OkStatus();
  const uint64_t top = wire.logprob_options().prompt_logprobs();
  if (top > model::kLogprobsMax) {
    return Invalid("prompt_logprobs", absl::StrCat(top),
                   absl::StrCat("in [0, ", model::kLogprobsMax, "]"));
  }
  const uint64_t entries = static_cast<uint64_t>(wire.tokens_size()) * (top + 2);
  if (entries > kPromptLogprobEntriesMax) {
    return Invalid("prompt_logprobs", absl::StrCat(top, " for ", wire.tokens_size(), " tokens"),
                   absl::StrCat("such that tokens * (prompt_logprobs + 2) <= ",
                                kPromptLogprobEntriesMax));
  }
  return absl::OkStatus();
}

absl::StatusOr<model::SamplingParams> DecodeSampling(const v1::EngineRequest& wire,
                                                     uint32_t vocabulary_size) {
  const v1::SamplingParams& from = wire.sampling();
  if (!from.has_seed()) return Invalid("seed", "absent", "set");
  if (from.logit_bias_size() > static_cast<int>(model::kLogitBiasMax)) {
    return Invalid("logit_bias", absl::StrCat(from.logit_bias_size(), " long"),
                   absl::StrCat("at most ", model::kLogitBiasMax));
  }
  model::SamplingParams to;
  if (from.has_temperature()) to.temperature = from.temperature();
  if (from.has_top_k()) to.top_k = from.top_k();
  if (from.has_top_p()) to.top_p = from.top_p();
  if (from.has_min_p()) to.min_p = from.min_p();
  if (from.has_repetition_penalty()) to.repetition_penalty = from.repetition_penalty();
  if (from.has_presence_penalty()) to.presence_penalty = from.presence_penalty();
  if (from.has_frequency_penalty()) to.frequency_penalty = from.frequency_penalty();
  to.logit_bias.assign(from.logit_bias().begin(), from.logit_bias().end());
  std::sort(to.logit_bias.begin(), to.logit_bias.end());
  to.seed = from.seed();
  to.sample_index = wire.sample_index();
  if (wire.logprob_options().has_logprobs()) to.logprobs = wire.logprob_options().logprobs();
  RETURN_IF_ERROR(model::Validate(to, vocabulary_size));
  return to;
}

absl::StatusOr<absl::Duration> DecodeTimeLeft(const v1::EngineRequest& wire) {
  if (!wire.has_time_left()) return absl::InfiniteDuration();
  const int64_t seconds = wire.time_left().seconds();
  const int32_t nanos = wire.time_left().nanos();
  if (seconds < 0 || seconds > kDurationSecondsMax || nanos < 0 || nanos > 999'999'999) {
    return Invalid("time_left", absl::StrCat(seconds, " s and ", nanos, " ns"),
                   absl::StrCat("in [0, ", kDurationSecondsMax, "] s and [0, 999999999] ns"));
  }
  return absl::Seconds(seconds) + absl::Nanoseconds(nanos);
}

// host:port, and nothing that gRPC would take for another kind of name.
absl::Status CheckAddress(absl::string_view field, absl::string_view address) {
  const size_t colon = address.rfind(':');
  int port = 0;
  const bool legal = address.size() <= kAddressBytesMax && colon != absl::string_view::npos &&
                     colon > 0 && absl::SimpleAtoi(address.substr(colon + 1), &port) &&
                     port >= 1 && port <= 65535 &&
                     address.find_first_of("/ \t\r\n%,") == absl::string_view::npos &&
                     address.substr(0, 5) != "unix:";
  if (legal) return absl::OkStatus();
  return Invalid(field, absl::StrCat("\"", absl::CHexEscape(address.substr(0, 64)), "\""),
                 absl::StrCat("host:port, at most ", kAddressBytesMax, " bytes"));
}

void EncodeDuration(absl::Duration duration, google::protobuf::Duration& wire) {
  const int64_t seconds = absl::IDivDuration(duration, absl::Seconds(1), &duration);
  wire.set_seconds(seconds);
  wire.set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(duration)));
}

void EncodeLogprob(const model::TokenLogprob& from, v1::TokenLogprob& to) {
  to.set_token_id(from.token);
  to.set_logprob(from.logprob);
}

void EncodePosition(const model::PositionLogprobs& from, v1::PositionLogprobs& to) {
  if (from.chosen.has_value()) EncodeLogprob(*from.chosen, *to.mutable_chosen());
  for (const model::TokenLogprob& entry : from.top) EncodeLogprob(entry, *to.add_top());
}

v1::FinishReason Encode(runner::FinishReason reason) {
  switch (reason) {
    case runner::FinishReason::kNone: return v1::FINISH_REASON_UNSPECIFIED;
    case runner::FinishReason::kStop: return v1::FINISH_REASON_STOP;
    case runner::FinishReason::kLength: return v1::FINISH_REASON_LENGTH;
  }
  return v1::FINISH_REASON_UNSPECIFIED;
}

v1::KvType Encode(kernels::KvType type) {
  switch (type) {
    case kernels::KvType::kF32: return v1::KV_TYPE_F32;
    case kernels::KvType::kF16: return v1::KV_TYPE_F16;
    case kernels::KvType::kBf16: return v1::KV_TYPE_BF16;
  }
  return v1::KV_TYPE_UNSPECIFIED;
}

// The id's 16 bytes, without a string of its own: one a token.
void EncodeKey(const AttemptKey& key, v1::RequestKey& wire) {
  std::string& id = *wire.mutable_request_id();
  id.resize(16);
  for (int i = 0; i < 8; ++i) {
    id[i] = static_cast<char>(key.request_id.high >> (56 - 8 * i));
    id[8 + i] = static_cast<char>(key.request_id.low >> (56 - 8 * i));
  }
  wire.set_attempt(key.attempt);
}

}  // namespace

absl::StatusOr<base::Id128> DecodeId(absl::string_view field, absl::string_view bytes) {
  const absl::StatusOr<base::Id128> id = base::Id128::FromBytes(bytes);
  if (id.ok() && !id->is_zero()) return *id;
  return Invalid(field, bytes.size() == 16 ? "zero" : absl::StrCat(bytes.size(), " bytes"),
                 "16 random bytes");
}

absl::StatusOr<AttemptKey> DecodeAttemptKey(const v1::RequestKey& wire) {
  AttemptKey key;
  ASSIGN_OR_RETURN(key.request_id, DecodeId("key.request_id", wire.request_id()));
  if (wire.attempt() == 0) return Invalid("key.attempt", "0", "at least 1");
  key.attempt = wire.attempt();
  return key;
}

absl::StatusOr<EngineRequest> DecodeEngineRequest(const v1::EngineRequest& wire,
                                                  const RequestLimits& limits) {
  EngineRequest request;
  ASSIGN_OR_RETURN(request.key, DecodeAttemptKey(wire.key()));
  ASSIGN_OR_RETURN(request.router, DecodeId("router_incarnation", wire.router_incarnation()));
  RETURN_IF_ERROR(CheckLengths(wire, limits));
  RETURN_IF_ERROR(CheckTokens("tokens", wire.tokens(), limits.vocabulary_size));
  RETURN_IF_ERROR(CheckBounds(wire));
  RETURN_IF_ERROR(CheckTokens("stop_token_ids", wire.stop_token_ids(), limits.vocabulary_size));
  RETURN_IF_ERROR(CheckPromptLogprobs(wire));
  RETURN_IF_ERROR(CheckUnserved(wire));
  ASSIGN_OR_RETURN(request.sampling, DecodeSampling(wire, limits.vocabulary_size));
  ASSIGN_OR_RETURN(request.time_left, DecodeTimeLeft(wire));
  request.tokens.assign(wire.tokens().begin(), wire.tokens().end());
  request.output_start = wire.output_start();
  request.max_tokens = wire.max_tokens();
  request.stop_token_ids.assign(wire.stop_token_ids().begin(), wire.stop_token_ids().end());
  if (wire.logprob_options().has_prompt_logprobs()) {
    request.prompt_logprobs = wire.logprob_options().prompt_logprobs();
  }
  request.cache_salt = wire.cache_salt();
  return request;
}

absl::StatusOr<std::optional<kvstore::HandoffPeer>> DecodeHandoffPeer(
    const v1::PrefillRequest& wire) {
  if (wire.decode_address().empty() && wire.decode_incarnation().empty()) return std::nullopt;
  if (wire.decode_address().empty()) {
    return Invalid("decode_address", "empty", "set when decode_incarnation is");
  }
  kvstore::HandoffPeer peer{.address = wire.decode_address()};
  RETURN_IF_ERROR(CheckAddress("decode_address", peer.address));
  ASSIGN_OR_RETURN(peer.incarnation, DecodeId("decode_incarnation", wire.decode_incarnation()));
  return peer;
}

void EncodeTokenEvent(const TokenEvent& event, v1::TokenEvent& wire) {
  EncodeKey(event.key, *wire.mutable_key());
  wire.set_sample_index(event.sample_index);
  wire.set_position(event.position);
  for (const model::SampledToken& token : event.tokens) {
    wire.add_tokens(token.token);
    if (token.logprobs.has_value()) EncodePosition(*token.logprobs, *wire.add_logprobs());
  }
  wire.set_finish_reason(Encode(event.finish));
  if (!event.error.ok()) {
    wire.mutable_error()->set_code(static_cast<uint32_t>(event.error.code()));
    wire.mutable_error()->set_message(std::string(event.error.message()));
  }
  if (event.prefill_report.has_value()) {
    v1::PrefillReport& report = *wire.mutable_prefill_report();
    report.set_cached_tokens(event.prefill_report->cached_tokens);
    EncodeDuration(event.prefill_report->queue, *report.mutable_queue());
    EncodeDuration(event.prefill_report->compute, *report.mutable_compute());
  }
  if (event.decode_report.has_value()) {
    v1::DecodeReport& report = *wire.mutable_decode_report();
    EncodeDuration(event.decode_report->handoff, *report.mutable_handoff());
    EncodeDuration(event.decode_report->first_decode, *report.mutable_first_decode());
  }
  for (const model::PositionLogprobs& position : event.prompt_logprobs) {
    EncodePosition(position, *wire.add_prompt_logprobs());
  }
}

size_t EncodedBytesBound(const TokenEvent& event) {
  // Key 26, position, sample index, finish reason and framing 24, reports 2 * 32; a token 6; a log-probability
  // (tag, length, id, f32) 13 and 4 a position.
  constexpr size_t kEventBytes = 128, kTokenBytes = 6, kLogprobBytes = 13, kPositionBytes = 4;
  size_t bytes = kEventBytes + event.error.message().size() + kTokenBytes * event.tokens.size();
  const auto position_bytes = [&](const model::PositionLogprobs& position) {
    return kPositionBytes + kLogprobBytes * (position.top.size() + 1);
  };
  for (const model::SampledToken& token : event.tokens) {
    if (token.logprobs.has_value()) bytes += position_bytes(*token.logprobs);
  }
  for (const auto& position : event.prompt_logprobs) bytes += position_bytes(position);
  return bytes;
}

void EncodeHello(const WorkerHello& hello, v1::WorkerHello& wire) {
  wire.set_incarnation(hello.incarnation.ToBytes());
  wire.set_role(hello.role == WorkerRole::kPrefill ? v1::WORKER_ROLE_PREFILL
                                                   : v1::WORKER_ROLE_DECODE);
  wire.set_address(hello.address);
  wire.set_model_name(hello.model_name);
  EncodeCompatibility(hello.compatibility, *wire.mutable_compatibility());
  wire.set_context_tokens(hello.context_tokens);
  wire.set_vocabulary_size(hello.vocabulary_size);
  wire.set_blocks_total(hello.blocks_total);
  wire.set_running_sequences_max(hello.running_sequences_max);
  wire.set_chunk_tokens(hello.chunk_tokens);
  wire.set_cpu_level(hello.cpu_level);
  wire.set_local_prefill(hello.local_prefill);
}

void EncodeLoad(const WorkerLoad& load, v1::LoadReport& wire) {
  wire.set_blocks_free(load.blocks_free);
  wire.set_blocks_pinned(load.blocks_pinned);
  wire.set_blocks_reserved(load.blocks_reserved);
  wire.set_queued_tokens(load.queued_tokens);
  wire.set_queued_requests(load.queued_requests);
  wire.set_running_sequences(load.running_sequences);
  wire.set_step_count(load.step_count);
  wire.set_prefill_tokens_per_second(load.prefill_tokens_per_second);
  wire.set_owed_bytes(load.owed_bytes);
  wire.set_routers_attached(load.routers_attached);
  if (load.current_step_age.has_value()) {
    EncodeDuration(*load.current_step_age, *wire.mutable_current_step_age());
  }
  if (load.decode_step.has_value()) EncodeDuration(*load.decode_step, *wire.mutable_decode_step());
  if (load.oldest_pin_age.has_value()) {
    EncodeDuration(*load.oldest_pin_age, *wire.mutable_oldest_pin_age());
  }
}

void EncodeCompatibility(const kvstore::Compatibility& compatibility, v1::Compatibility& wire) {
  wire.set_model_digest(compatibility.model_digest);
  wire.set_numerics_class(compatibility.numerics_class);
  const kernels::KvLayout& layout = compatibility.layout;
  v1::KvLayout& to = *wire.mutable_layout();
  to.set_layers(layout.layers);
  to.set_kv_heads(layout.kv_heads);
  to.set_head_dim(layout.head_dim);
  to.set_block_tokens(layout.block_tokens);
  to.set_kv_type(Encode(layout.type));
  to.set_order("layer_block_head_kpair_vpair");
  to.set_tensor_parallel_rank(0);
  to.set_tensor_parallel_size(1);
  to.set_kv_head_begin(0);
  to.set_kv_head_end(layout.kv_heads);
  wire.set_digest(compatibility.Digest());
}

}  // namespace baton::worker
