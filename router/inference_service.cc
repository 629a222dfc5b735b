#include "router/inference_service.h"

#include <memory>
#include <utility>

#include "base/grpc_status.h"
#include "base/status_macros.h"
#include "router/inference_codec.h"
#include "router/wire_codec.h"

namespace baton::router {
namespace {

template <typename Request>
absl::StatusOr<RequestSpec> ParseSpec(const grpc::ByteBuffer& bytes) {
  Request wire;
  RETURN_IF_ERROR(ParseMessage(bytes, wire));
  return FromProto(wire);
}

v1::TokenizeResponse ToProto(const ServedModel& model, EncodedPrompt encoded) {
  v1::TokenizeResponse response;
  response.mutable_token_ids()->Add(encoded.tokens.begin(), encoded.tokens.end());
  response.mutable_token_bytes()->Reserve(static_cast<int>(encoded.tokens.size()));
  for (const uint32_t token : encoded.tokens) {
    response.add_token_bytes(model.tokenizer->token_bytes(token));
  }
  response.set_rendered_text(std::move(encoded.rendered_text));
  return response;
}

}  // namespace

InferenceService::InferenceService(RequestHandler& handler, AnswerBuffers& buffers)
    : handler_(handler), buffers_(buffers) {}

grpc::ServerWriteReactor<grpc::ByteBuffer>* InferenceService::Generate(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  return Open(AnswerStream::Kind::kGenerate, *context, ParseSpec<v1::GenerateRequest>(*request));
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* InferenceService::Chat(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  return Open(AnswerStream::Kind::kChat, *context, ParseSpec<v1::ChatRequest>(*request));
}

AnswerStream* InferenceService::Open(AnswerStream::Kind kind, grpc::CallbackServerContext& context,
                                     absl::StatusOr<RequestSpec> spec) {
  auto stream = std::make_shared<AnswerStream>(kind, context, handler_, buffers_);
  buffers_.Open(stream);
  stream->Start(std::move(spec));
  return stream.get();
}

grpc::ServerUnaryReactor* InferenceService::Tokenize(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* request,
                                                     grpc::ByteBuffer* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const absl::Status status = StartTokenize(*request, [this, reactor, response](auto encoded) {
    if (encoded.ok()) SerializeMessage(ToProto(handler_.model(), *std::move(encoded)), *response);
    reactor->Finish(base::ToGrpcStatus(encoded.status()));
  });
  if (!status.ok()) reactor->Finish(base::ToGrpcStatus(status));
  return reactor;
}

absl::Status InferenceService::StartTokenize(const grpc::ByteBuffer& bytes,
                                             RequestHandler::Encoded done) {
  v1::TokenizeRequest request;
  RETURN_IF_ERROR(ParseMessage(bytes, request));
  ASSIGN_OR_RETURN(Prompt prompt, PromptFromProto(request));
  return handler_.Encode(request.model(), std::move(prompt), std::move(done));
}

grpc::ServerUnaryReactor* InferenceService::Detokenize(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request,
                                                       grpc::ByteBuffer* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const absl::Status status = StartDetokenize(*request, [reactor, response](std::string text) {
    v1::DetokenizeResponse message;
    message.set_text(std::move(text));
    SerializeMessage(message, *response);
    reactor->Finish(grpc::Status::OK);
  });
  if (!status.ok()) reactor->Finish(base::ToGrpcStatus(status));
  return reactor;
}

absl::Status InferenceService::StartDetokenize(const grpc::ByteBuffer& bytes,
                                               RequestHandler::Decoded done) {
  v1::DetokenizeRequest request;
  RETURN_IF_ERROR(ParseMessage(bytes, request));
  return handler_.Decode(request.model(), {request.token_ids().begin(), request.token_ids().end()},
                         std::move(done));
}

grpc::ServerUnaryReactor* InferenceService::ListModels(grpc::CallbackServerContext* context,
                                                       const v1::ListModelsRequest*,
                                                       v1::ListModelsResponse* response) {
  const ServedModel& served = handler_.model();
  v1::Model& model = *response->add_models();
  model.set_name(served.name);
  model.set_context_tokens(handler_.worker_context_tokens());
  model.set_vocabulary_size(served.vocabulary_size);
  model.set_has_chat_template(served.chat_template != nullptr);
  model.set_architecture(served.architecture);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerUnaryReactor* InferenceService::GetClusterStatus(
    grpc::CallbackServerContext* context, const v1::GetClusterStatusRequest*,
    v1::GetClusterStatusResponse* response) {
  router::ToProto(handler_.Status(), *response);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace baton::router
