// Bytes to protobuf messages and back, for services that parse requests themselves.
//
// Left to itself gRPC answers a request that it cannot parse (text that is not UTF-8, most likely)
// with an UNIMPLEMENTED that says nothing.
#pragma once

#include "absl/status/status.h"
#include "google/protobuf/message.h"
#include "grpcpp/support/byte_buffer.h"

namespace baton::router {

// INVALID_ARGUMENT, naming the string field and the offset of the first byte that is not UTF-8, or
// the message's type when the bytes are no such message at all. `bytes` may be of no message.
absl::Status ParseMessage(const grpc::ByteBuffer& bytes, google::protobuf::Message& message);

void SerializeMessage(const google::protobuf::Message& message, grpc::ByteBuffer& bytes);

}  // namespace baton::router
