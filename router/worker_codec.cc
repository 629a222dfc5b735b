#include "router/worker_codec.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace baton::router {
namespace {

absl::StatusOr<base::Id128> IdFromBytes(const std::string& bytes, absl::string_view field) {
  absl::StatusOr<base::Id128> id = base::Id128::FromBytes(bytes);
  if (id.ok()) return id;
  return absl::InvalidArgumentError(
      absl::StrCat(field, " has ", bytes.size(), " bytes, must have 16"));
}

uint64_t ElementBytes(v1::KvType type) { return type == v1::KV_TYPE_F32 ? 4 : 2; }

FinishReason FromProto(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_STOP:
      return FinishReason::kStop;
    case v1::FINISH_REASON_LENGTH:
      return FinishReason::kLength;
    default:
      return FinishReason::kNone;
  }
}

TokenLogprob FromProto(const v1::TokenLogprob& wire) {
  return {.token = wire.token_id(), .logprob = wire.logprob()};
}

std::vector<PositionLogprobs> FromProto(
    const google::protobuf::RepeatedPtrField<v1::PositionLogprobs>& wire) {
  std::vector<PositionLogprobs> positions;
  positions.reserve(wire.size());
  for (const v1::PositionLogprobs& position : wire) {
    PositionLogprobs& entry = positions.emplace_back();
    if (position.has_chosen()) entry.chosen = FromProto(position.chosen());
    for (const v1::TokenLogprob& token : position.top()) entry.top.push_back(FromProto(token));
  }
  return positions;
}

// Everything that becomes text: it is looked up in the tokenizer.
absl::Status CheckToken(absl::string_view field, uint32_t token, uint32_t vocabulary_size) {
  if (token < vocabulary_size) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", token, ", must be in [0, ", vocabulary_size, ")"));
}

absl::Status CheckTokens(absl::string_view field,
                         const google::protobuf::RepeatedPtrField<v1::PositionLogprobs>& positions,
                         uint32_t vocabulary_size) {
  for (const v1::PositionLogprobs& position : positions) {
    RETURN_IF_ERROR(CheckToken(field, position.chosen().token_id(), vocabulary_size));
    for (const v1::TokenLogprob& token : position.top()) {
      RETURN_IF_ERROR(CheckToken(field, token.token_id(), vocabulary_size));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckTokens(const v1::TokenEvent& wire, uint32_t vocabulary_size) {
  for (const uint32_t token : wire.tokens()) {
    RETURN_IF_ERROR(CheckToken("event.tokens", token, vocabulary_size));
  }
  RETURN_IF_ERROR(CheckTokens("event.logprobs", wire.logprobs(), vocabulary_size));
  return CheckTokens("event.prompt_logprobs", wire.prompt_logprobs(), vocabulary_size);
}

bool HasExtras(const v1::TokenEvent& wire) {
  return wire.logprobs_size() > 0 || wire.prompt_logprobs_size() > 0 || wire.has_prefill_report() ||
         wire.has_decode_report() || wire.has_error();
}

absl::Status ErrorFromProto(const v1::EngineError& wire) {
  const auto code = static_cast<absl::StatusCode>(wire.code());
  const bool known = wire.code() >= 1 && wire.code() <= 16;
  return absl::Status(known ? code : absl::StatusCode::kInternal, wire.message());
}

std::unique_ptr<const EventExtras> ExtrasFromProto(const v1::TokenEvent& wire) {
  auto extras = std::make_unique<EventExtras>();
  extras->logprobs = FromProto(wire.logprobs());
  extras->prompt_logprobs = FromProto(wire.prompt_logprobs());
  if (wire.has_prefill_report()) {
    const v1::PrefillReport& report = wire.prefill_report();
    extras->prefill_report = PrefillReport{.cached_tokens = report.cached_tokens(),
                                           .queue = DurationFromProto(report.queue()),
                                           .compute = DurationFromProto(report.compute())};
  }
  if (wire.has_decode_report()) {
    const v1::DecodeReport& report = wire.decode_report();
    extras->decode_report = DecodeReport{.handoff = DurationFromProto(report.handoff()),
                                         .first_decode = DurationFromProto(report.first_decode())};
  }
  if (wire.has_error()) extras->error = ErrorFromProto(wire.error());
  return extras;
}

absl::StatusOr<WorkerRole> RoleFromProto(v1::WorkerRole role) {
  switch (role) {
    case v1::WORKER_ROLE_PREFILL:
      return WorkerRole::kPrefill;
    case v1::WORKER_ROLE_DECODE:
      return WorkerRole::kDecode;
    default:
      return absl::InvalidArgumentError(absl::StrCat("hello.role is ", static_cast<int>(role),
                                                     ", must be WORKER_ROLE_PREFILL or _DECODE"));
  }
}

absl::Status CheckPositive(absl::string_view field, uint64_t value) {
  if (value > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("hello.", field, " is 0, must be > 0"));
}

}  // namespace

absl::StatusOr<WorkerHello> FromProto(const v1::WorkerHello& wire) {
  WorkerHello hello;
  ASSIGN_OR_RETURN(hello.incarnation, IdFromBytes(wire.incarnation(), "hello.incarnation"));
  ASSIGN_OR_RETURN(hello.role, RoleFromProto(wire.role()));
  if (wire.address().empty()) return absl::InvalidArgumentError("hello.address is empty");
  const v1::KvLayout& layout = wire.compatibility().layout();
  RETURN_IF_ERROR(CheckPositive("context_tokens", wire.context_tokens()));
  RETURN_IF_ERROR(CheckPositive("vocabulary_size", wire.vocabulary_size()));
  RETURN_IF_ERROR(CheckPositive("blocks_total", wire.blocks_total()));
  RETURN_IF_ERROR(CheckPositive("compatibility.layout.block_tokens", layout.block_tokens()));
  if (wire.compatibility().digest().empty()) {
    return absl::InvalidArgumentError("hello.compatibility.digest is empty");
  }
  if (hello.role == WorkerRole::kDecode) {
    RETURN_IF_ERROR(CheckPositive("running_sequences_max", wire.running_sequences_max()));
  }
  hello.address = wire.address();
  hello.model_name = wire.model_name();
  hello.model_digest = wire.compatibility().model_digest();
  hello.compatibility_digest = wire.compatibility().digest();
  hello.block_tokens = layout.block_tokens();
  hello.kv_bytes_per_token = 2ull * layout.layers() * layout.kv_heads() * layout.head_dim() *
                             ElementBytes(layout.kv_type());
  hello.context_tokens = wire.context_tokens();
  hello.vocabulary_size = wire.vocabulary_size();
  hello.blocks_total = wire.blocks_total();
  hello.running_sequences_max = wire.running_sequences_max();
  hello.chunk_tokens = wire.chunk_tokens();
  hello.cpu_level = wire.cpu_level();
  hello.local_prefill = wire.local_prefill();
  return hello;
}

LoadReport FromProto(const v1::LoadReport& wire) {
  LoadReport report{.sequence_number = wire.sequence_number(),
                    .blocks_free = wire.blocks_free(),
                    .blocks_pinned = wire.blocks_pinned(),
                    .blocks_reserved = wire.blocks_reserved(),
                    .queued_tokens = wire.queued_tokens(),
                    .queued_requests = wire.queued_requests(),
                    .running_sequences = wire.running_sequences(),
                    .step_count = wire.step_count(),
                    .prefill_tokens_per_second = wire.prefill_tokens_per_second(),
                    .owed_bytes = wire.owed_bytes()};
  if (wire.has_current_step_age())
    report.current_step_age = DurationFromProto(wire.current_step_age());
  if (wire.has_decode_step()) report.decode_step = DurationFromProto(wire.decode_step());
  return report;
}

absl::StatusOr<StepBatch> FromProto(const v1::StepEvents& wire, uint32_t vocabulary_size) {
  StepBatch batch;
  batch.events.reserve(wire.events_size());
  batch.tokens.reserve(wire.events_size());
  for (const v1::TokenEvent& event : wire.events()) {
    RETURN_IF_ERROR(CheckTokens(event, vocabulary_size));
    TokenEvent& entry = batch.events.emplace_back();
    ASSIGN_OR_RETURN(entry.key.id, IdFromBytes(event.key().request_id(), "event.key.request_id"));
    entry.key.attempt = event.key().attempt();
    entry.position = event.position();
    entry.token_begin = static_cast<uint32_t>(batch.tokens.size());
    entry.token_count = static_cast<uint32_t>(event.tokens_size());
    batch.tokens.insert(batch.tokens.end(), event.tokens().begin(), event.tokens().end());
    entry.finish_reason = FromProto(event.finish_reason());
    if (HasExtras(event)) entry.extras = ExtrasFromProto(event);
  }
  return batch;
}

void ToProto(const RequestKey& key, v1::RequestKey& wire) {
  wire.set_request_id(key.id.ToBytes());
  wire.set_attempt(key.attempt);
}

void ToProto(const SamplingParams& sampling, v1::SamplingParams& wire) {
  wire.set_temperature(sampling.temperature);
  wire.set_top_k(sampling.top_k);
  wire.set_top_p(sampling.top_p);
  wire.set_min_p(sampling.min_p);
  wire.set_repetition_penalty(sampling.repetition_penalty);
  wire.set_presence_penalty(sampling.presence_penalty);
  wire.set_frequency_penalty(sampling.frequency_penalty);
  for (const auto& [token, bias] : sampling.logit_bias) (*wire.mutable_logit_bias())[token] = bias;
  if (sampling.seed.has_value()) wire.set_seed(*sampling.seed);
}

void ToProto(const LogprobOptions& options, v1::LogprobOptions& wire) {
  if (options.logprobs.has_value()) wire.set_logprobs(*options.logprobs);
  if (options.prompt_logprobs.has_value()) wire.set_prompt_logprobs(*options.prompt_logprobs);
}

void ToProto(const EngineRequest& request, absl::Time now, v1::EngineRequest& wire) {
  ToProto(request.key, *wire.mutable_key());
  wire.set_router_incarnation(request.router_incarnation.ToBytes());
  wire.mutable_tokens()->Add(request.tokens->begin(), request.tokens->end());
  wire.set_output_start(static_cast<uint32_t>(request.tokens->size()));
  ToProto(request.sampling, *wire.mutable_sampling());
  wire.set_max_tokens(request.max_tokens);
  wire.mutable_stop_token_ids()->Add(request.stop_token_ids.begin(), request.stop_token_ids.end());
  ToProto(request.logprob_options, *wire.mutable_logprob_options());
  if (request.deadline != absl::InfiniteFuture()) {
    ToProto(std::max(request.deadline - now, absl::ZeroDuration()), *wire.mutable_time_left());
  }
}

absl::Duration DurationFromProto(const google::protobuf::Duration& wire) {
  return absl::Seconds(wire.seconds()) + absl::Nanoseconds(wire.nanos());
}

void ToProto(absl::Duration duration, google::protobuf::Duration& wire) {
  const int64_t seconds = absl::IDivDuration(duration, absl::Seconds(1), &duration);
  wire.set_seconds(seconds);
  wire.set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(duration)));
}

}  // namespace baton::router
