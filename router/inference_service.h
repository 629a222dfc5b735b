// The public gRPC service: a thin skin over RequestHandler.
#pragma once

#include "baton/v1/inference_service.grpc.pb.h"
#include "router/answer_buffers.h"
#include "router/request_handler.h"

namespace baton::router {

class InferenceService final : public v1::InferenceService::CallbackService {
 public:
  // Both outlive the service and its streams.
  InferenceService(RequestHandler& handler, AnswerBuffers& buffers);

  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(
      grpc::CallbackServerContext* context, const v1::GenerateRequest* request) override;
  grpc::ServerWriteReactor<v1::ChatResponse>* Chat(grpc::CallbackServerContext* context,
                                                   const v1::ChatRequest* request) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const v1::TokenizeRequest* request,
                                     v1::TokenizeResponse* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context,
                                       const v1::DetokenizeRequest* request,
                                       v1::DetokenizeResponse* response) override;
  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context,
                                       const v1::ListModelsRequest* request,
                                       v1::ListModelsResponse* response) override;
  grpc::ServerUnaryReactor* GetClusterStatus(grpc::CallbackServerContext* context,
                                             const v1::GetClusterStatusRequest* request,
                                             v1::GetClusterStatusResponse* response) override;

 private:
  RequestHandler& handler_;
  AnswerBuffers& buffers_;
};

}  // namespace baton::router
