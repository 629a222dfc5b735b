// How two workers introduce themselves when a link opens. Plain data; link_codec.h puts it on the wire.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/id128.h"
#include "kvstore/compatibility.h"

namespace baton::kvstore {

// What a link's bytes travel over.
enum class TransportKind {
  kLoopback = 1,  // Both ends in one process.
  kShm = 2,       // The sink maps the source's arena.
  kGrpc = 3,      // Pushed on PushRanges.
};

inline constexpr TransportKind kAllTransports[] = {TransportKind::kLoopback, TransportKind::kShm,
                                                   TransportKind::kGrpc};

inline absl::string_view Name(TransportKind kind) {
  switch (kind) {
    case TransportKind::kLoopback: return "loopback";
    case TransportKind::kShm: return "shm";
    case TransportKind::kGrpc: return "grpc";
  }
  return "unknown";
}

// "loopback", "shm" or "grpc"; INVALID_ARGUMENT for another name.
absl::StatusOr<TransportKind> ParseTransportKind(absl::string_view name);

// Where the source hands out the descriptor of its arena.
struct ShmOffer {
  std::string boot_id;      // Of the source's kernel.
  std::string socket_name;  // Of an abstract unix socket.
  std::string nonce;        // 32 random bytes: binds the socket to this link.
  uint64_t arena_bytes = 0;
};

struct LinkHello {
  base::Id128 incarnation;       // The source's.
  base::Id128 peer_incarnation;  // The one it wants to talk to.
  Compatibility compatibility;
  std::vector<TransportKind> transports;  // What the source can do, best first.
  std::optional<ShmOffer> shm;
  base::Id128 link_id;  // Random: names this link on PushRanges.
};

struct LinkHelloReply {
  base::Id128 incarnation;  // The sink's.
  TransportKind transport = TransportKind::kGrpc;
};

}  // namespace baton::kvstore
