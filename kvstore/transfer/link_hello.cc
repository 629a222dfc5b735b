#include "kvstore/transfer/link_hello.h"

#include "absl/strings/str_cat.h"

namespace baton::kvstore {

absl::StatusOr<TransportKind> ParseTransportKind(absl::string_view name) {
  for (const TransportKind kind : kAllTransports) {
    if (name == Name(kind)) return kind;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("transport is \"", name, "\", must be loopback, shm or grpc"));
}

}  // namespace baton::kvstore
