// What the parts of one rendering share: the budget, the makers of values, the clock.
//
// Thread-compatible: one per rendering, and it outlives all values that it made.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "model/chat_template/budget.h"
#include "model/chat_template/python_text.h"
#include "model/chat_template/value.h"

namespace baton::model::jinja {

class Runtime {
 public:
  struct Options {
    uint64_t operations_max;
    uint64_t bytes_max;
    uint32_t depth_max;  // Of nested lists and dicts.
    absl::Time now;
  };
  // `cases` outlives it.
  Runtime(const Options& options, const CaseMapper& cases)
      : budget_(options.operations_max, options.bytes_max),
        depth_max_(options.depth_max),
        now_(options.now),
        cases_(cases) {}

  Budget& budget() { return budget_; }
  const CaseMapper& cases() const { return cases_; }
  absl::Time now() const { return now_; }

  // Each spends for the bytes that the value takes and holds them while it lives.
  // RESOURCE_EXHAUSTED at a bound. REQUIRES: text is valid UTF-8.
  absl::StatusOr<Value> NewText(std::string text);
  absl::StatusOr<Value> NewText(absl::string_view text) { return NewText(std::string(text)); }
  absl::StatusOr<Value> NewList(std::vector<Value> items) {
    return NewSequence(std::move(items), false);
  }
  absl::StatusOr<Value> NewTuple(std::vector<Value> items) {
    return NewSequence(std::move(items), true);
  }
  absl::StatusOr<Value> NewDict(std::shared_ptr<Dict> dict);
  absl::StatusOr<Namespace*> NewNamespace();
  absl::Status SetAttribute(Namespace& space, absl::string_view name, Value value);
  absl::StatusOr<Value> NewMethod(Value self, const MethodSpec& spec);
  absl::StatusOr<std::shared_ptr<Loop>> NewLoop(std::shared_ptr<const List> items);

  // RESOURCE_EXHAUSTED unless `bytes` more could be held: asked before something that large is
  // made.
  absl::Status CheckRoom(uint64_t bytes);

  // The template refused in its own words: they are the error, without a position.
  void set_refused() { refused_ = true; }
  bool refused() const { return refused_; }

 private:
  absl::StatusOr<Value> NewSequence(std::vector<Value> items, bool is_tuple);
  absl::Status CheckDepth(uint32_t depth) const;

  Budget budget_;
  const uint32_t depth_max_;
  const absl::Time now_;
  const CaseMapper& cases_;
  bool refused_ = false;
  std::deque<Namespace> namespaces_;  // Never move; cleared before the budget goes.
};

// Builds a text piece by piece within the budget.
class TextBuilder {
 public:
  explicit TextBuilder(Runtime& runtime) : runtime_(runtime) {}
  ~TextBuilder() { runtime_.budget().Release(text_.size()); }
  TextBuilder(const TextBuilder&) = delete;
  TextBuilder& operator=(const TextBuilder&) = delete;

  absl::Status Append(absl::string_view piece);
  absl::Status AppendRepeated(absl::string_view piece, uint64_t times);
  uint64_t byte_count() const { return text_.size(); }

  // The text; the builder is empty then.
  absl::StatusOr<Value> TakeValue() { return runtime_.NewText(TakeString()); }
  std::string TakeString();

 private:
  Runtime& runtime_;
  std::string text_;
};

}  // namespace baton::model::jinja
