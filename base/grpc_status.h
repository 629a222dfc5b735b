// The one translation between our errors and gRPC's.
#pragma once

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace baton::base {

grpc::Status ToGrpcStatus(const absl::Status& status);
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace baton::base
