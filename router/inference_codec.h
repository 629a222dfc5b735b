// Translates between the public wire and request.h. Pure functions.
#pragma once

#include "absl/status/statusor.h"
#include "baton/v1/inference_service.pb.h"
#include "model/tokenizer/tokenizer.h"
#include "router/request.h"
#include "router/request_handler.h"

namespace baton::router {

// What the wire alone can get wrong (nothing set in a oneof); Validate() of request.h has the rest.
// Sets neither id, nor arrival, nor deadline.
absl::StatusOr<RequestSpec> FromProto(const v1::GenerateRequest& wire);
absl::StatusOr<RequestSpec> FromProto(const v1::ChatRequest& wire);
absl::StatusOr<Prompt> PromptFromProto(const v1::TokenizeRequest& wire);

// Adds a piece to a message that was not sent yet. `tokenizer` spells out tokens of
// log-probabilities; null: none.
void AppendPiece(const AnswerPiece& piece, const model::Tokenizer* tokenizer,
                 v1::GenerateResponse& wire);
void SetEnding(const AnswerEnding& ending, v1::GenerateResponse& wire);

void ToProto(const WorkerSnapshot& worker, v1::WorkerStatus& wire);
void ToProto(const ClusterStatus& status, v1::GetClusterStatusResponse& wire);

}  // namespace baton::router
