// JSON documents as template values.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "model/chat_template/value.h"
#include "nlohmann/json_fwd.hpp"

namespace baton::model::jinja {

// Not counted by any budget: the sender of the document bounds it. `name` is what messages call it.
// INVALID_ARGUMENT when it is nested deeper than ChatTemplate::kNestingMax, has a string that is
// not valid UTF-8, or an integer beyond 64 bits.
absl::StatusOr<Value> FromJson(absl::string_view name, const nlohmann::ordered_json& json);

}  // namespace baton::model::jinja
