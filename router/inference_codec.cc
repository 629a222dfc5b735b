#include "router/inference_codec.h"

#include <algorithm>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "router/worker_codec.h"

namespace baton::router {
namespace {

SamplingParams FromProto(const v1::SamplingParams& wire) {
  SamplingParams sampling;
  if (wire.has_temperature()) sampling.temperature = wire.temperature();
  if (wire.has_top_k()) sampling.top_k = wire.top_k();
  if (wire.has_top_p()) sampling.top_p = wire.top_p();
  if (wire.has_min_p()) sampling.min_p = wire.min_p();
  if (wire.has_repetition_penalty()) sampling.repetition_penalty = wire.repetition_penalty();
  if (wire.has_presence_penalty()) sampling.presence_penalty = wire.presence_penalty();
  if (wire.has_frequency_penalty()) sampling.frequency_penalty = wire.frequency_penalty();
  sampling.logit_bias.assign(wire.logit_bias().begin(), wire.logit_bias().end());
  std::sort(sampling.logit_bias.begin(), sampling.logit_bias.end());
  if (wire.has_seed()) sampling.seed = wire.seed();
  return sampling;
}

StopConditions FromProto(const v1::StopConditions& wire) {
  StopConditions conditions;
  if (wire.has_max_tokens()) conditions.max_tokens = wire.max_tokens();
  conditions.stop.assign(wire.stop().begin(), wire.stop().end());
  conditions.stop_token_ids.assign(wire.stop_token_ids().begin(), wire.stop_token_ids().end());
  conditions.ignore_eos = wire.ignore_eos();
  return conditions;
}

LogprobOptions FromProto(const v1::LogprobOptions& wire) {
  LogprobOptions options;
  if (wire.has_logprobs()) options.logprobs = wire.logprobs();
  if (wire.has_prompt_logprobs()) options.prompt_logprobs = wire.prompt_logprobs();
  return options;
}

ChatPrompt FromProto(const google::protobuf::RepeatedPtrField<v1::ChatMessage>& wire) {
  ChatPrompt chat;
  chat.messages.reserve(wire.size());
  for (const v1::ChatMessage& message : wire) {
    chat.messages.push_back({.role = message.role(), .content = message.content()});
  }
  return chat;
}

// The fields that Generate and Chat share, whatever their numbers.
template <typename Wire>
RequestSpec SharedFromProto(const Wire& wire) {
  RequestSpec spec;
  spec.client_request_id = wire.client_request_id();
  spec.model = wire.model();
  spec.sampling = FromProto(wire.sampling());
  spec.stop_conditions = FromProto(wire.stop_conditions());
  spec.logprob_options = FromProto(wire.logprob_options());
  if (wire.has_n()) spec.n = wire.n();
  return spec;
}

void ToProto(const TokenLogprob& token, const model::Tokenizer* tokenizer, v1::TokenLogprob& wire) {
  wire.set_token_id(token.token);
  wire.set_logprob(token.logprob);
  if (tokenizer == nullptr || token.token >= tokenizer->vocabulary_size()) return;
  wire.set_token_bytes(tokenizer->token_bytes(token.token));
}

void ToProto(const PositionLogprobs& position, const model::Tokenizer* tokenizer,
             v1::PositionLogprobs& wire) {
  if (position.chosen.has_value()) ToProto(*position.chosen, tokenizer, *wire.mutable_chosen());
  for (const TokenLogprob& token : position.top) ToProto(token, tokenizer, *wire.add_top());
}

v1::FinishReason ToProto(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return v1::FINISH_REASON_UNSPECIFIED;
    case FinishReason::kStop:
      return v1::FINISH_REASON_STOP;
    case FinishReason::kLength:
      return v1::FINISH_REASON_LENGTH;
  }
  return v1::FINISH_REASON_UNSPECIFIED;
}

const char* NameOf(WorkerState state) {
  switch (state) {
    case WorkerState::kReady:
      return "ready";
    case WorkerState::kDraining:
      return "draining";
    case WorkerState::kSuspect:
      return "suspect";
  }
  return "";
}

const char* RoleName(const WorkerHello& hello) {
  if (hello.role == WorkerRole::kPrefill) return "prefill";
  return "decode";
}

}  // namespace

absl::StatusOr<RequestSpec> FromProto(const v1::GenerateRequest& wire) {
  RequestSpec spec = SharedFromProto(wire);
  switch (wire.prompt_case()) {
    case v1::GenerateRequest::kText:
      spec.prompt = TextPrompt{.text = wire.text()};
      break;
    case v1::GenerateRequest::kTokenIds:
      spec.prompt = TokenPrompt{{wire.token_ids().ids().begin(), wire.token_ids().ids().end()}};
      break;
    case v1::GenerateRequest::PROMPT_NOT_SET:
      return absl::InvalidArgumentError("prompt is not set, must be text or token_ids");
  }
  return spec;
}

absl::StatusOr<RequestSpec> FromProto(const v1::ChatRequest& wire) {
  RequestSpec spec = SharedFromProto(wire);
  spec.prompt = FromProto(wire.messages());
  return spec;
}

absl::StatusOr<Prompt> PromptFromProto(const v1::TokenizeRequest& wire) {
  switch (wire.input_case()) {
    case v1::TokenizeRequest::kText:
      return TextPrompt{.text = wire.text(), .parse_special = wire.parse_special()};
    case v1::TokenizeRequest::kChat:
      return FromProto(wire.chat().messages());
    case v1::TokenizeRequest::INPUT_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("input is not set, must be text or chat");
}

void AppendPiece(const AnswerPiece& piece, const model::Tokenizer* tokenizer,
                 v1::GenerateResponse& wire) {
  if (wire.token_ids().empty()) wire.set_position(piece.position);
  wire.mutable_text()->append(piece.text);
  wire.mutable_token_ids()->Add(piece.tokens.begin(), piece.tokens.end());
  for (const PositionLogprobs& position : piece.logprobs) {
    ToProto(position, tokenizer, *wire.add_logprobs());
  }
  for (const PositionLogprobs& position : piece.prompt_logprobs) {
    ToProto(position, tokenizer, *wire.add_prompt_logprobs());
  }
}

void SetEnding(const AnswerEnding& ending, v1::GenerateResponse& wire) {
  wire.set_finish_reason(ToProto(ending.finish_reason));
  v1::Usage& usage = *wire.mutable_usage();
  usage.set_prompt_tokens(ending.usage.prompt_tokens);
  usage.set_cached_tokens(ending.usage.cached_tokens);
  usage.set_completion_tokens(ending.usage.completion_tokens);
  usage.set_seed(ending.usage.seed);
  v1::Timings& timings = *wire.mutable_timings();
  const auto set = [](const std::optional<absl::Duration>& part, auto mutable_field) {
    if (part.has_value()) ToProto(*part, *mutable_field());
  };
  set(ending.timings.text, [&] { return timings.mutable_text(); });
  set(ending.timings.queue, [&] { return timings.mutable_queue(); });
  set(ending.timings.prefill_queue, [&] { return timings.mutable_prefill_queue(); });
  set(ending.timings.prefill, [&] { return timings.mutable_prefill(); });
  set(ending.timings.handoff, [&] { return timings.mutable_handoff(); });
  set(ending.timings.first_decode, [&] { return timings.mutable_first_decode(); });
  set(ending.timings.time_to_first_token, [&] { return timings.mutable_time_to_first_token(); });
  set(ending.timings.total, [&] { return timings.mutable_total(); });
}

void ToProto(const WorkerSnapshot& worker, v1::WorkerStatus& wire) {
  wire.set_role(RoleName(worker.hello));
  wire.set_address(worker.hello.address);
  wire.set_incarnation(worker.hello.incarnation.ToHex());
  wire.set_state(NameOf(worker.state));
  wire.set_blocks_total(worker.hello.blocks_total);
  wire.set_blocks_free(worker.report.blocks_free);
  wire.set_blocks_pinned(worker.report.blocks_pinned);
  wire.set_blocks_reserved(worker.report.blocks_reserved);
  wire.set_queued_tokens(worker.report.queued_tokens);
  wire.set_queued_requests(worker.report.queued_requests);
  wire.set_running_sequences(worker.report.running_sequences);
  wire.set_step_count(worker.report.step_count);
  wire.set_cpu_level(worker.hello.cpu_level);
}

void ToProto(const ClusterStatus& status, v1::GetClusterStatusResponse& wire) {
  for (const WorkerSnapshot& worker : status.workers) ToProto(worker, *wire.add_workers());
  wire.set_requests_waiting(status.requests_waiting);
  wire.set_requests_running(status.requests_running);
  wire.set_uptime_seconds(absl::ToDoubleSeconds(status.uptime));
}

}  // namespace baton::router
