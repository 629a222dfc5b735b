// Starts a gRPC server the way all of Baton's servers are: health, reflection, bounded messages, keepalive, drain.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/channel.h"
#include "grpcpp/server.h"

namespace baton::base {

struct GrpcServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 0;  // 0: any.
  std::vector<grpc::Service*> services;  // Outlive the server.
  std::vector<std::string> health_names;  // Full service names that health reports, beside "".
  int64_t message_bytes_max = 16 << 20;
};

// Client channels between our own processes (attach, control, links): keepalive that both ends agree on, and a connection
// of their own, so that bulk bytes never stand before a command.
std::shared_ptr<grpc::Channel> OpenChannel(const std::string& address, int64_t message_bytes_max = 16 << 20);

class GrpcServer {
 public:
  // UNAVAILABLE when the port is in use. Health says NOT_SERVING until SetServing(true).
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(const GrpcServerOptions& options);
  ~GrpcServer();

  uint16_t port() const { return port_; }
  std::string address() const;  // host:port
  void SetServing(bool serving);
  // Refuses new calls at once, gives running ones `grace`, then cancels them. Blocks. Idempotent.
  void Stop(absl::Duration grace);

 private:
  GrpcServer() = default;
  std::unique_ptr<grpc::Server> server_;
  std::vector<std::string> health_names_;
  std::string host_;
  uint16_t port_ = 0;
};

}  // namespace baton::base
