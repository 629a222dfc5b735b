// Between the messages of a link and their protos. Everything that comes in is checked here for form (sizes of ids, counts,
// enums); whether it makes sense is the state machines' business.
#pragma once

#include "absl/status/statusor.h"
#include "baton/v1/link_service.pb.h"
#include "kvstore/handoff_messages.h"
#include "kvstore/transfer/link_hello.h"

namespace baton::kvstore {

v1::OpenLinkRequest ToProto(const LinkHello& hello);
v1::OpenLinkRequest ToProto(const SourceMessage& message);
v1::OpenLinkResponse ToProto(const LinkHelloReply& reply);
v1::OpenLinkResponse ToProto(const SinkMessage& message);

// INVALID_ARGUMENT naming the field, value and legal range.
absl::StatusOr<LinkHello> HelloFromProto(const v1::OpenLinkRequest& request);
absl::StatusOr<SourceMessage> SourceMessageFromProto(const v1::OpenLinkRequest& request);
absl::StatusOr<LinkHelloReply> HelloReplyFromProto(const v1::OpenLinkResponse& response);
absl::StatusOr<SinkMessage> SinkMessageFromProto(const v1::OpenLinkResponse& response);

}  // namespace baton::kvstore
