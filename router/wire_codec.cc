#include "router/wire_codec.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/utf8.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/unknown_field_set.h"
#include "grpcpp/impl/codegen/proto_utils.h"

namespace baton::router {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::UnknownField;
using google::protobuf::UnknownFieldSet;

// Deeper than any of our messages nests.
constexpr int kDepthMax = 8;

// Empty if they cannot be had.
std::string JoinSlices(const grpc::ByteBuffer& bytes) {
  std::vector<grpc::Slice> slices;
  std::string joined;
  if (!bytes.Dump(&slices).ok()) return joined;
  joined.reserve(bytes.Length());
  for (const grpc::Slice& slice : slices) {
    joined.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return joined;
}

// The first string field that is not UTF-8: what it is called and why. `wire` is a message of
// `type` parsed without knowledge of it.
std::optional<std::string> FindBadText(const Descriptor& type, const UnknownFieldSet& wire,
                                       const std::string& prefix, int depth) {
  for (int i = 0; i < wire.field_count(); ++i) {
    const UnknownField& field = wire.field(i);
    const FieldDescriptor* known = type.FindFieldByNumber(field.number());
    if (known == nullptr || field.type() != UnknownField::TYPE_LENGTH_DELIMITED) continue;
    const std::string name = prefix + known->name();
    const std::string& content = field.length_delimited();
    if (known->type() == FieldDescriptor::TYPE_STRING) {
      const size_t bad = base::FindInvalidUtf8(content);
      if (bad != absl::string_view::npos) {
        return absl::StrCat(name, " is not valid UTF-8 at byte ", bad, " of ", content.size());
      }
    }
    UnknownFieldSet inner;
    if (known->type() != FieldDescriptor::TYPE_MESSAGE || depth == kDepthMax) continue;
    if (!inner.ParseFromString(content)) return name + " is malformed";
    auto found = FindBadText(*known->message_type(), inner, name + ".", depth + 1);
    if (found.has_value()) return found;
  }
  return std::nullopt;
}

}  // namespace

absl::Status ParseMessage(const grpc::ByteBuffer& bytes, google::protobuf::Message& message) {
  // A call may end, or be cancelled, before its message: gRPC serves it nevertheless.
  if (!bytes.Valid()) return absl::InvalidArgumentError("the call ended without a request");
  grpc::ByteBuffer copy = bytes;  // Of references; parsing empties it.
  grpc::ProtoBufferReader reader(&copy);
  if (reader.status().ok() && message.ParseFromZeroCopyStream(&reader)) return absl::OkStatus();
  const Descriptor& type = *message.GetDescriptor();
  UnknownFieldSet wire;
  std::optional<std::string> why;
  if (wire.ParseFromString(JoinSlices(bytes))) why = FindBadText(type, wire, "", 0);
  return absl::InvalidArgumentError(
      why.value_or(absl::StrCat("the request is not a valid ", type.full_name())));
}

void SerializeMessage(const google::protobuf::Message& message, grpc::ByteBuffer& bytes) {
  bool own_buffer = false;
  const grpc::Status status =
      grpc::GenericSerialize<grpc::ProtoBufferWriter, google::protobuf::Message>(message, &bytes,
                                                                                 &own_buffer);
  CHECK(status.ok()) << status.error_message();
}

}  // namespace baton::router
