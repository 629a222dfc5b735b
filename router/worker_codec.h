// Translates between the wire and worker_messages.h. Pure functions; what a worker sends is checked
// here.
#pragma once

#include "absl/status/statusor.h"
#include "baton/v1/attach_service.pb.h"
#include "baton/v1/types.pb.h"
#include "baton/v1/worker_types.pb.h"
#include "router/worker_messages.h"

namespace baton::router {

// INVALID_ARGUMENT, naming the field.
absl::StatusOr<WorkerHello> FromProto(const v1::WorkerHello& wire);
LoadReport FromProto(const v1::LoadReport& wire);
// INVALID_ARGUMENT, also for a token outside the vocabulary. Does not set worker and receipt.
absl::StatusOr<StepBatch> FromProto(const v1::StepEvents& wire, uint32_t vocabulary_size);

void ToProto(const RequestKey& key, v1::RequestKey& wire);
// `now` turns the deadline into the time left.
void ToProto(const EngineRequest& request, absl::Time now, v1::EngineRequest& wire);

// Shared with the public codec.
void ToProto(const SamplingParams& sampling, v1::SamplingParams& wire);
void ToProto(const LogprobOptions& options, v1::LogprobOptions& wire);
absl::Duration DurationFromProto(const google::protobuf::Duration& wire);
void ToProto(absl::Duration duration, google::protobuf::Duration& wire);

}  // namespace baton::router
