#include "tools/baton/inference_client.h"

#include <chrono>

#include "base/grpc_server.h"
#include "base/grpc_status.h"
#include "baton/v1/inference_service.grpc.pb.h"
#include "grpcpp/client_context.h"

namespace baton::tools {
namespace {

constexpr absl::Duration kShortCallTimeout = absl::Seconds(10);

absl::Duration FromProto(const google::protobuf::Duration& duration) {
  return absl::Seconds(duration.seconds()) + absl::Nanoseconds(duration.nanos());
}

const char* FinishReasonName(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_STOP: return "stop";
    case v1::FINISH_REASON_LENGTH: return "length";
    default: return "unfinished";
  }
}

v1::SamplingParams SamplingOf(const AnswerOptions& options) {
  v1::SamplingParams sampling;
  if (options.temperature) sampling.set_temperature(*options.temperature);
  if (options.top_k) sampling.set_top_k(*options.top_k);
  if (options.top_p) sampling.set_top_p(*options.top_p);
  if (options.min_p) sampling.set_min_p(*options.min_p);
  if (options.repetition_penalty) sampling.set_repetition_penalty(*options.repetition_penalty);
  if (options.seed) sampling.set_seed(*options.seed);
  return sampling;
}

v1::StopConditions StopOf(const AnswerOptions& options) {
  v1::StopConditions stop;
  if (options.max_tokens) stop.set_max_tokens(*options.max_tokens);
  for (const std::string& text : options.stop) stop.add_stop(text);
  stop.set_ignore_eos(options.ignore_eos);
  return stop;
}

void SetDeadline(grpc::ClientContext& context, absl::Duration timeout) {
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(timeout));
}

const v1::GenerateResponse& PieceOf(const v1::GenerateResponse& response) { return response; }
const v1::GenerateResponse& PieceOf(const v1::ChatResponse& response) { return response.piece(); }

// Reads an answer to its end.
template <typename Response>
absl::StatusOr<AnswerSummary> ReadAnswer(grpc::ClientContext& context,
                                         grpc::ClientReader<Response>& reader,
                                         const TextSink& sink) {
  AnswerSummary summary;
  Response response;
  while (reader.Read(&response)) {
    const v1::GenerateResponse& piece = PieceOf(response);
    summary.text += piece.text();
    if (!piece.text().empty() && !sink(piece.text())) context.TryCancel();
    if (piece.finish_reason() == v1::FINISH_REASON_UNSPECIFIED) continue;
    summary.finish_reason = FinishReasonName(piece.finish_reason());
    summary.prompt_tokens = piece.usage().prompt_tokens();
    summary.cached_tokens = piece.usage().cached_tokens();
    summary.completion_tokens = piece.usage().completion_tokens();
    summary.time_to_first_token = FromProto(piece.timings().time_to_first_token());
    summary.total = FromProto(piece.timings().total());
  }
  const grpc::Status status = reader.Finish();
  if (!status.ok()) return base::FromGrpcStatus(status);
  return summary;
}

WorkerDescription FromProto(const v1::WorkerStatus& wire) {
  WorkerDescription worker;
  worker.role = wire.role();
  worker.address = wire.address();
  worker.state = wire.state();
  worker.incarnation = wire.incarnation();
  worker.cpu_level = wire.cpu_level();
  worker.blocks_total = wire.blocks_total();
  worker.blocks_free = wire.blocks_free();
  worker.blocks_pinned = wire.blocks_pinned();
  worker.blocks_reserved = wire.blocks_reserved();
  worker.queued_tokens = wire.queued_tokens();
  worker.queued_requests = wire.queued_requests();
  worker.running_sequences = wire.running_sequences();
  worker.step_count = wire.step_count();
  return worker;
}

}  // namespace

double AnswerSummary::tokens_per_second() const {
  const double seconds = absl::ToDoubleSeconds(total - time_to_first_token);
  return completion_tokens > 1 && seconds > 0 ? (completion_tokens - 1) / seconds : 0.0;
}

class InferenceClient::Impl {
 public:
  explicit Impl(const std::string& address)
      : stub(v1::InferenceService::NewStub(base::OpenChannel(address))) {}
  std::unique_ptr<v1::InferenceService::Stub> stub;
};

InferenceClient::InferenceClient(const std::string& router_address)
    : impl_(std::make_unique<Impl>(router_address)) {}
InferenceClient::~InferenceClient() = default;

absl::StatusOr<AnswerSummary> InferenceClient::Chat(const std::vector<ChatTurn>& turns,
                                                    const AnswerOptions& options,
                                                    const TextSink& sink) {
  v1::ChatRequest request;
  request.set_model(options.model);
  for (const ChatTurn& turn : turns) {
    v1::ChatMessage* message = request.add_messages();
    message->set_role(turn.role);
    message->set_content(turn.content);
  }
  *request.mutable_sampling() = SamplingOf(options);
  *request.mutable_stop_conditions() = StopOf(options);
  grpc::ClientContext context;
  auto reader = impl_->stub->Chat(&context, request);
  return ReadAnswer(context, *reader, sink);
}

absl::StatusOr<AnswerSummary> InferenceClient::Generate(const std::string& prompt,
                                                        const AnswerOptions& options,
                                                        const TextSink& sink) {
  v1::GenerateRequest request;
  request.set_model(options.model);
  request.set_text(prompt);
  *request.mutable_sampling() = SamplingOf(options);
  *request.mutable_stop_conditions() = StopOf(options);
  grpc::ClientContext context;
  auto reader = impl_->stub->Generate(&context, request);
  return ReadAnswer(context, *reader, sink);
}

absl::StatusOr<std::vector<TokenDescription>> InferenceClient::Tokenize(const std::string& text,
                                                                        bool parse_special) {
  v1::TokenizeRequest request;
  request.set_text(text);
  request.set_parse_special(parse_special);
  v1::TokenizeResponse response;
  grpc::ClientContext context;
  SetDeadline(context, kShortCallTimeout);
  const grpc::Status status = impl_->stub->Tokenize(&context, request, &response);
  if (!status.ok()) return base::FromGrpcStatus(status);
  std::vector<TokenDescription> tokens;
  for (int i = 0; i < response.token_ids_size(); ++i) {
    tokens.push_back({.id = response.token_ids(i), .bytes = response.token_bytes(i)});
  }
  return tokens;
}

absl::StatusOr<std::vector<ModelDescription>> InferenceClient::ListModels() {
  v1::ListModelsResponse response;
  grpc::ClientContext context;
  SetDeadline(context, kShortCallTimeout);
  const grpc::Status status =
      impl_->stub->ListModels(&context, v1::ListModelsRequest(), &response);
  if (!status.ok()) return base::FromGrpcStatus(status);
  std::vector<ModelDescription> models;
  for (const v1::Model& wire : response.models()) {
    models.push_back({.name = wire.name(),
                      .architecture = wire.architecture(),
                      .context_tokens = wire.context_tokens(),
                      .vocabulary_size = wire.vocabulary_size(),
                      .has_chat_template = wire.has_chat_template()});
  }
  return models;
}

absl::StatusOr<ClusterDescription> InferenceClient::GetClusterStatus() {
  v1::GetClusterStatusResponse response;
  grpc::ClientContext context;
  SetDeadline(context, kShortCallTimeout);
  const grpc::Status status =
      impl_->stub->GetClusterStatus(&context, v1::GetClusterStatusRequest(), &response);
  if (!status.ok()) return base::FromGrpcStatus(status);
  ClusterDescription cluster;
  for (const v1::WorkerStatus& worker : response.workers()) {
    cluster.workers.push_back(FromProto(worker));
  }
  cluster.requests_waiting = response.requests_waiting();
  cluster.requests_running = response.requests_running();
  cluster.uptime = absl::Seconds(response.uptime_seconds());
  return cluster;
}

}  // namespace baton::tools
