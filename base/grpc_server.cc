#include "base/grpc_server.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/server_builder.h"

namespace baton::base {
namespace {

// A frozen peer is noticed after about 1.5 s; an idle link may ping that often.
constexpr int kKeepaliveTimeMs = 1000;
constexpr int kKeepaliveTimeoutMs = 500;
// The least time a connection attempt is given: gRPC's name for it is misleading. A peer whose cores are busy may take
// some 100 ms to shake hands.
constexpr int kConnectTimeoutMs = 1000;
constexpr int kStreamsPerConnectionMax = 1 << 16;

// gRPC 1.51 joins its callback threads when the last channel or server that used them goes. A reaction often lets go of
// the last one (a ClientContext holds its channel), and then a callback thread would join itself: "assertion failed:
// prior > 0". So one server, which listens to nothing, stays for good.
void KeepCallbackThreads() {
  static grpc::Server* const kept = [] {
    grpc::ServerBuilder builder;
    builder.RegisterCallbackGenericService(new grpc::CallbackGenericService);
    return builder.BuildAndStart().release();
  }();
  CHECK(kept != nullptr);
}

}  // namespace

std::shared_ptr<grpc::Channel> OpenChannel(const std::string& address, int64_t message_bytes_max) {
  KeepCallbackThreads();
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectTimeoutMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetMaxReceiveMessageSize(static_cast<int>(message_bytes_max));
  arguments.SetMaxSendMessageSize(static_cast<int>(message_bytes_max));
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(const GrpcServerOptions& options) {
  static const bool plugins = [] {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    return true;
  }();
  CHECK(plugins);
  KeepCallbackThreads();
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(absl::StrCat(options.host, ":", options.port),
                           grpc::InsecureServerCredentials(), &port);
  // Two servers must never share a port silently.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kKeepaliveTimeMs / 2);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 10 * kKeepaliveTimeMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10 * kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kStreamsPerConnectionMax);
  builder.SetMaxReceiveMessageSize(static_cast<int>(options.message_bytes_max));
  builder.SetMaxSendMessageSize(static_cast<int>(options.message_bytes_max));
  for (grpc::Service* service : options.services) builder.RegisterService(service);
  std::unique_ptr<grpc::Server> started = builder.BuildAndStart();
  if (started == nullptr || port == 0) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", options.host, ":",
                                               options.port, ": the port is in use or the address "
                                               "is not of this machine"));
  }
  std::unique_ptr<GrpcServer> server(new GrpcServer);
  server->server_ = std::move(started);
  server->health_names_ = options.health_names;
  server->host_ = options.host;
  server->port_ = static_cast<uint16_t>(port);
  server->SetServing(false);
  return server;
}

GrpcServer::~GrpcServer() { Stop(absl::ZeroDuration()); }

std::string GrpcServer::address() const { return absl::StrCat(host_, ":", port_); }

void GrpcServer::SetServing(bool serving) {
  grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
  CHECK(health != nullptr);
  health->SetServingStatus("", serving);
  for (const std::string& name : health_names_) health->SetServingStatus(name, serving);
}

void GrpcServer::Stop(absl::Duration grace) {
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMicroseconds(grace));
  server_->Wait();
  server_.reset();
}

}  // namespace baton::base
