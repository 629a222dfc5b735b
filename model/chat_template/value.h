// What a template computes with: Python's values, as far as Jinja shows them.
//
// Values are immutable but for namespaces and the position of a loop, so they share their parts
// freely and cannot form cycles: a namespace belongs to the rendering and is only pointed at. Depth
// is bounded, so that walks may recurse.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "model/chat_template/budget.h"

namespace baton::model::jinja {

struct Text;
struct List;
struct Dict;
struct Loop;
struct Namespace;
struct Method;
struct MacroValue;
struct Function;  // A global; see functions.h.

struct Undefined {
  absl::string_view name;  // What was looked for, if it has a name; lives as long as the template.
};
struct None {};

class Value {
 public:
  Value() : data_(Undefined{}) {}
  Value(Undefined undefined) : data_(undefined) {}
  Value(None none) : data_(none) {}
  // Only from exactly these types: a pointer or an int would turn into a bool.
  template <typename T>
  requires std::is_same_v<T, bool> || std::is_same_v<T, int64_t> || std::is_same_v<T, double> Value(
      T value)
      : data_(value) {}
  Value(std::shared_ptr<const Text> text) : data_(std::move(text)) {}
  Value(std::shared_ptr<const List> list) : data_(std::move(list)) {}
  Value(std::shared_ptr<const Dict> dict) : data_(std::move(dict)) {}
  Value(std::shared_ptr<const Loop> loop) : data_(std::move(loop)) {}
  Value(std::shared_ptr<const Method> method) : data_(std::move(method)) {}
  Value(std::shared_ptr<const MacroValue> macro) : data_(std::move(macro)) {}
  Value(const Function* function) : data_(function) {}
  Value(Namespace* space) : data_(space) {}

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  bool is_callable() const { return function() || method() || macro(); }
  // Null when it is something else.
  const Undefined* undefined() const { return std::get_if<Undefined>(&data_); }
  const bool* boolean() const { return std::get_if<bool>(&data_); }
  const int64_t* integer() const { return std::get_if<int64_t>(&data_); }
  const double* real() const { return std::get_if<double>(&data_); }
  const std::string* text() const;
  const List* list() const { return Pointer<List>(); }  // A list or a tuple.
  const Dict* dict() const { return Pointer<Dict>(); }
  const Loop* loop() const { return Pointer<Loop>(); }
  const Method* method() const { return Pointer<Method>(); }
  const MacroValue* macro() const { return Pointer<MacroValue>(); }
  const Function* function() const { return Plain<const Function*>(); }
  Namespace* space() const { return Plain<Namespace*>(); }

  std::shared_ptr<const List> shared_list() const {
    const auto* list = std::get_if<std::shared_ptr<const List>>(&data_);
    return list == nullptr ? nullptr : *list;
  }

  // The Python type's name, for messages: "str", "NoneType", …
  absl::string_view type_name() const;
  // 0 for what has no parts.
  uint32_t depth() const;

 private:
  template <typename T>
  const T* Pointer() const {
    const auto* pointer = std::get_if<std::shared_ptr<const T>>(&data_);
    return pointer == nullptr ? nullptr : pointer->get();
  }
  template <typename T>
  T Plain() const {
    const T* pointer = std::get_if<T>(&data_);
    return pointer == nullptr ? nullptr : *pointer;
  }

  std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const Text>,
               std::shared_ptr<const List>, std::shared_ptr<const Dict>,
               std::shared_ptr<const Loop>, std::shared_ptr<const Method>,
               std::shared_ptr<const MacroValue>, const Function*, Namespace*>
      data_;
};

// Bytes of a budget that are given back when their owner goes. A null budget: not counted (the
// template's constants and the inputs, which have bounds of their own).
class Holding {
 public:
  Holding() = default;
  Holding(Budget* budget, uint64_t bytes) : budget_(budget), bytes_(bytes) {}
  Holding(Holding&& other) noexcept { *this = std::move(other); }
  Holding& operator=(Holding&& other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Holding() {
    if (budget_ != nullptr) budget_->Release(bytes_);
  }

 private:
  Budget* budget_ = nullptr;
  uint64_t bytes_ = 0;
};

struct Text {
  static constexpr uint64_t kOverheadBytes = 80;
  std::string text;  // Valid UTF-8.
  Holding holding;
};

struct List {
  static constexpr uint64_t kOverheadBytes = 80;
  std::vector<Value> items;
  bool is_tuple = false;
  uint32_t depth = 1;
  Holding holding;
};

// In the order in which keys were first set. Keys are strings, as in JSON.
struct Dict {
  static constexpr uint64_t kOverheadBytes = 160;
  static constexpr uint64_t kEntryBytes = 3 * sizeof(Value);
  struct Entry {
    Value key, value;
  };
  std::vector<Entry> entries;
  absl::flat_hash_map<absl::string_view, size_t> index;  // Views of the keys.
  uint32_t depth = 1;
  Holding holding;

  // Null: absent.
  const Value* Find(absl::string_view key) const;
  // Adds the entry, or replaces the value of its key. REQUIRES: the key is a string.
  void Set(Value key, Value value);
};

// `namespace()`: the one thing that a template can change from inside a loop.
struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;
  const Value* Find(absl::string_view name) const;
  void Set(absl::string_view name, Value value);
};

// The variable `loop` of a for.
struct Loop {
  std::shared_ptr<const List> items;
  size_t index = 0;
};

// A method of a value, not called yet: `text.split`.
struct MethodSpec;
struct Method {
  Value self;
  const MethodSpec* spec;
};

}  // namespace baton::model::jinja
