#include "router/inference_service.h"

#include <memory>
#include <utility>

#include "base/grpc_status.h"
#include "router/answer_stream_service.h"
#include "router/inference_codec.h"

namespace baton::router {
namespace {

template <typename Response, typename Request>
grpc::ServerWriteReactor<Response>* OpenAnswer(grpc::CallbackServerContext& context,
                                               RequestHandler& handler, AnswerBuffers& buffers,
                                               const Request& request) {
  auto stream = std::make_shared<AnswerStream<Response>>(context, handler, buffers);
  buffers.Open(stream);
  stream->Start(FromProto(request));
  return stream.get();
}

void Fill(const ServedModel& model, EncodedPrompt encoded, v1::TokenizeResponse& response) {
  response.mutable_token_ids()->Add(encoded.tokens.begin(), encoded.tokens.end());
  response.mutable_token_bytes()->Reserve(static_cast<int>(encoded.tokens.size()));
  for (const uint32_t token : encoded.tokens) {
    response.add_token_bytes(model.tokenizer->token_bytes(token));
  }
  response.set_rendered_text(std::move(encoded.rendered_text));
}

}  // namespace

InferenceService::InferenceService(RequestHandler& handler, AnswerBuffers& buffers)
    : handler_(handler), buffers_(buffers) {}

grpc::ServerWriteReactor<v1::GenerateResponse>* InferenceService::Generate(
    grpc::CallbackServerContext* context, const v1::GenerateRequest* request) {
  return OpenAnswer<v1::GenerateResponse>(*context, handler_, buffers_, *request);
}

grpc::ServerWriteReactor<v1::ChatResponse>* InferenceService::Chat(
    grpc::CallbackServerContext* context, const v1::ChatRequest* request) {
  return OpenAnswer<v1::ChatResponse>(*context, handler_, buffers_, *request);
}

grpc::ServerUnaryReactor* InferenceService::Tokenize(grpc::CallbackServerContext* context,
                                                     const v1::TokenizeRequest* request,
                                                     v1::TokenizeResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  absl::StatusOr<Prompt> prompt = PromptFromProto(*request);
  absl::Status status = prompt.status();
  if (prompt.ok()) {
    status = handler_.Encode(request->model(), *std::move(prompt),
                             [this, reactor, response](absl::StatusOr<EncodedPrompt> encoded) {
                               if (encoded.ok())
                                 Fill(handler_.model(), *std::move(encoded), *response);
                               reactor->Finish(base::ToGrpcStatus(encoded.status()));
                             });
  }
  if (!status.ok()) reactor->Finish(base::ToGrpcStatus(status));
  return reactor;
}

grpc::ServerUnaryReactor* InferenceService::Detokenize(grpc::CallbackServerContext* context,
                                                       const v1::DetokenizeRequest* request,
                                                       v1::DetokenizeResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const absl::Status status =
      handler_.Decode(request->model(), {request->token_ids().begin(), request->token_ids().end()},
                      [reactor, response](std::string text) {
                        response->set_text(std::move(text));
                        reactor->Finish(grpc::Status::OK);
                      });
  if (!status.ok()) reactor->Finish(base::ToGrpcStatus(status));
  return reactor;
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
  ToProto(handler_.Status(), *response);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace baton::router
