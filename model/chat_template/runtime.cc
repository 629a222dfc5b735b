#include "model/chat_template/runtime.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace baton::model::jinja {

absl::Status Runtime::CheckRoom(uint64_t bytes) {
  RETURN_IF_ERROR(budget_.Hold(bytes));
  budget_.Release(bytes);
  return absl::OkStatus();
}

absl::Status Runtime::CheckDepth(uint32_t depth) const {
  if (depth <= depth_max_) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("values are nested deeper than ", depth_max_, " levels"));
}

absl::StatusOr<Value> Runtime::NewText(std::string text) {
  const uint64_t bytes = text.size() + Text::kOverheadBytes;
  RETURN_IF_ERROR(budget_.SpendBytes(bytes));
  RETURN_IF_ERROR(budget_.Hold(bytes));
  return Value(std::make_shared<const Text>(Text{std::move(text), Holding(&budget_, bytes)}));
}

absl::StatusOr<Value> Runtime::NewSequence(std::vector<Value> items, bool is_tuple) {
  const uint64_t bytes = items.size() * sizeof(Value) + List::kOverheadBytes;
  RETURN_IF_ERROR(budget_.SpendBytes(bytes));
  RETURN_IF_ERROR(budget_.Hold(bytes));
  Holding holding(&budget_, bytes);
  uint32_t depth = 1;
  for (const Value& item : items) depth = std::max(depth, item.depth() + 1);
  RETURN_IF_ERROR(CheckDepth(depth));
  return Value(
      std::make_shared<const List>(List{std::move(items), is_tuple, depth, std::move(holding)}));
}

absl::StatusOr<Value> Runtime::NewDict(std::shared_ptr<Dict> dict) {
  const uint64_t bytes = dict->entries.size() * Dict::kEntryBytes + Dict::kOverheadBytes;
  RETURN_IF_ERROR(budget_.SpendBytes(bytes));
  RETURN_IF_ERROR(budget_.Hold(bytes));
  dict->holding = Holding(&budget_, bytes);
  RETURN_IF_ERROR(CheckDepth(dict->depth));
  return Value(std::shared_ptr<const Dict>(std::move(dict)));
}

absl::StatusOr<Namespace*> Runtime::NewNamespace() {
  RETURN_IF_ERROR(budget_.Hold(sizeof(Namespace)));
  return &namespaces_.emplace_back();
}

absl::Status Runtime::SetAttribute(Namespace& space, absl::string_view name, Value value) {
  RETURN_IF_ERROR(budget_.Spend(1 + space.attributes.size() / 16));
  if (space.Find(name) == nullptr) {
    RETURN_IF_ERROR(budget_.Hold(sizeof(space.attributes[0]) + name.size()));
  }
  space.Set(name, std::move(value));
  return absl::OkStatus();
}

absl::StatusOr<Value> Runtime::NewMethod(Value self, const MethodSpec& spec) {
  RETURN_IF_ERROR(CheckDepth(self.depth() + 1));
  return Value(std::make_shared<const Method>(Method{std::move(self), &spec}));
}

absl::StatusOr<std::shared_ptr<Loop>> Runtime::NewLoop(std::shared_ptr<const List> items) {
  RETURN_IF_ERROR(CheckDepth(items->depth + 1));
  return std::make_shared<Loop>(Loop{std::move(items)});
}

absl::Status TextBuilder::Append(absl::string_view piece) {
  RETURN_IF_ERROR(runtime_.budget().SpendBytes(piece.size()));
  RETURN_IF_ERROR(runtime_.budget().Hold(piece.size()));
  text_.append(piece.data(), piece.size());
  return absl::OkStatus();
}

absl::Status TextBuilder::AppendRepeated(absl::string_view piece, uint64_t times) {
  if (piece.empty()) return absl::OkStatus();
  if (times > std::numeric_limits<uint64_t>::max() / piece.size()) {
    return runtime_.CheckRoom(std::numeric_limits<uint64_t>::max());
  }
  RETURN_IF_ERROR(runtime_.CheckRoom(piece.size() * times));
  for (uint64_t i = 0; i < times; ++i) RETURN_IF_ERROR(Append(piece));
  return absl::OkStatus();
}

std::string TextBuilder::TakeString() {
  runtime_.budget().Release(text_.size());
  return std::exchange(text_, std::string());
}

}  // namespace baton::model::jinja
