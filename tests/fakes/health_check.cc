#include "tests/fakes/health_check.h"

#include <vector>

#include "base/grpc_server.h"
#include "grpcpp/impl/codegen/client_unary_call.h"
#include "grpcpp/impl/codegen/rpc_method.h"
#include "grpcpp/support/byte_buffer.h"

namespace baton::fakes {

Health HealthOf(const std::string& address, const std::string& service) {
  const auto channel = base::OpenChannel(address);
  // HealthCheckRequest { string service = 1; }
  const std::string bytes = std::string("\x0a") + static_cast<char>(service.size()) + service;
  const grpc::Slice slice(bytes);
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer response;
  grpc::ClientContext context;
  const grpc::Status status =
      grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer>(
          channel.get(),
          grpc::internal::RpcMethod("/grpc.health.v1.Health/Check",
                                    grpc::internal::RpcMethod::NORMAL_RPC),
          &context, request, &response);
  if (!status.ok()) return Health::kUnreachable;
  // HealthCheckResponse { ServingStatus status = 1; }
  std::vector<grpc::Slice> slices;
  if (!response.Dump(&slices).ok()) return Health::kUnreachable;
  std::string got;
  for (const grpc::Slice& part : slices) {
    got.append(reinterpret_cast<const char*>(part.begin()), part.size());
  }
  return got.size() == 2 && got[0] == '\x08' ? static_cast<Health>(got[1]) : Health::kUnknown;
}

}  // namespace baton::fakes
