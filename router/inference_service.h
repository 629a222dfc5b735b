// The public gRPC service: a thin skin over RequestHandler.
#pragma once

#include "baton/v1/inference_service.grpc.pb.h"
#include "router/answer_buffers.h"
#include "router/answer_stream_service.h"
#include "router/request_handler.h"

namespace baton::router {

// The methods that take a request parse it themselves; see wire_codec.h.
using InferenceServiceBase = v1::InferenceService::WithRawCallbackMethod_Generate<
    v1::InferenceService::WithRawCallbackMethod_Chat<
        v1::InferenceService::WithRawCallbackMethod_Tokenize<
            v1::InferenceService::WithRawCallbackMethod_Detokenize<
                v1::InferenceService::WithCallbackMethod_ListModels<
                    v1::InferenceService::WithCallbackMethod_GetClusterStatus<
                        v1::InferenceService::Service>>>>>>;

class InferenceService final : public InferenceServiceBase {
 public:
  // Both outlive the service and its streams.
  InferenceService(RequestHandler& handler, AnswerBuffers& buffers);

  grpc::ServerWriteReactor<grpc::ByteBuffer>* Generate(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Chat(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context,
                                       const v1::ListModelsRequest* request,
                                       v1::ListModelsResponse* response) override;
  grpc::ServerUnaryReactor* GetClusterStatus(grpc::CallbackServerContext* context,
                                             const v1::GetClusterStatusRequest* request,
                                             v1::GetClusterStatusResponse* response) override;

 private:
  AnswerStream* Open(AnswerStream::Kind kind, grpc::CallbackServerContext& context,
                     absl::StatusOr<RequestSpec> spec);
  absl::Status StartTokenize(const grpc::ByteBuffer& bytes, RequestHandler::Encoded done);
  absl::Status StartDetokenize(const grpc::ByteBuffer& bytes, RequestHandler::Decoded done);

  RequestHandler& handler_;
  AnswerBuffers& buffers_;
};

}  // namespace baton::router
