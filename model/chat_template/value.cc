#include "model/chat_template/value.h"

#include <algorithm>

#include "base/check.h"

namespace baton::model::jinja {

const std::string* Value::text() const {
  const Text* text = Pointer<Text>();
  return text == nullptr ? nullptr : &text->text;
}

absl::string_view Value::type_name() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "NoneType";
  if (boolean()) return "bool";
  if (integer()) return "int";
  if (real()) return "float";
  if (text()) return "str";
  if (list()) return list()->is_tuple ? "tuple" : "list";
  if (dict()) return "dict";
  if (loop()) return "LoopContext";
  if (space()) return "Namespace";
  if (macro()) return "Macro";
  return "function";
}

uint32_t Value::depth() const {
  if (list()) return list()->depth;
  if (dict()) return dict()->depth;
  if (loop()) return loop()->items->depth + 1;
  if (method()) return method()->self.depth() + 1;
  return 0;
}

const Value* Dict::Find(absl::string_view key) const {
  const auto found = index.find(key);
  return found == index.end() ? nullptr : &entries[found->second].value;
}

void Dict::Set(Value key, Value value) {
  CHECK(key.text() != nullptr) << key.type_name();
  depth = std::max(depth, value.depth() + 1);
  const auto [place, added] = index.try_emplace(*key.text(), entries.size());
  if (added) {
    entries.push_back({std::move(key), std::move(value)});
  } else {
    entries[place->second].value = std::move(value);
  }
}

const Value* Namespace::Find(absl::string_view name) const {
  for (const auto& [attribute, value] : attributes) {
    if (attribute == name) return &value;
  }
  return nullptr;
}

void Namespace::Set(absl::string_view name, Value value) {
  for (auto& [attribute, old] : attributes) {
    if (attribute == name) {
      old = std::move(value);
      return;
    }
  }
  attributes.emplace_back(std::string(name), std::move(value));
}

}  // namespace baton::model::jinja
