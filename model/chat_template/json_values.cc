#include "model/chat_template/json_values.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/utf8.h"
#include "model/chat_template/chat_template.h"
#include "nlohmann/json.hpp"

namespace baton::model::jinja {
namespace {

using Json = nlohmann::ordered_json;

class Converter {
 public:
  explicit Converter(absl::string_view name) : name_(name) {}

  absl::StatusOr<Value> Convert(const Json& json, uint32_t depth) {
    switch (json.type()) {
      case Json::value_t::null:
        return Value(None{});
      case Json::value_t::boolean:
        return Value(json.get<bool>());
      case Json::value_t::number_integer:
        return Value(json.get<int64_t>());
      case Json::value_t::number_float:
        return Value(json.get<double>());
      case Json::value_t::number_unsigned:
        return ConvertUnsigned(json.get<uint64_t>());
      case Json::value_t::string:
        return ConvertText(json.get_ref<const std::string&>());
      case Json::value_t::array:
        return ConvertArray(json, depth);
      case Json::value_t::object:
        return ConvertObject(json, depth);
      default:
        return Bad("has a value that is not JSON");
    }
  }

 private:
  absl::Status Bad(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat(name_, " ", what));
  }

  absl::Status CheckDepth(uint32_t depth) const {
    if (depth <= ChatTemplate::kNestingMax) return absl::OkStatus();
    return Bad(absl::StrCat("is nested deeper than ", ChatTemplate::kNestingMax, " levels"));
  }

  absl::StatusOr<Value> ConvertUnsigned(uint64_t number) const {
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return Bad(absl::StrCat("has the integer ", number, ", which is beyond 2^63 - 1"));
    }
    return Value(static_cast<int64_t>(number));
  }

  absl::StatusOr<Value> ConvertText(const std::string& text) const {
    const size_t offset = base::FindInvalidUtf8(text);
    if (offset == absl::string_view::npos) {
      return Value(std::make_shared<const Text>(Text{text, {}}));
    }
    return Bad(absl::StrCat("has a string that is not valid UTF-8 at byte offset ", offset));
  }

  absl::StatusOr<Value> ConvertArray(const Json& json, uint32_t depth) {
    RETURN_IF_ERROR(CheckDepth(depth));
    auto list = std::make_shared<List>();
    list->items.reserve(json.size());
    for (const Json& item : json) {
      ASSIGN_OR_RETURN(list->items.emplace_back(), Convert(item, depth + 1));
      list->depth = std::max(list->depth, list->items.back().depth() + 1);
    }
    return Value(std::shared_ptr<const List>(std::move(list)));
  }

  absl::StatusOr<Value> ConvertObject(const Json& json, uint32_t depth) {
    RETURN_IF_ERROR(CheckDepth(depth));
    auto dict = std::make_shared<Dict>();
    for (const auto& [name, item] : json.items()) {
      ASSIGN_OR_RETURN(Value key, ConvertText(name));
      ASSIGN_OR_RETURN(Value value, Convert(item, depth + 1));
      dict->Set(std::move(key), std::move(value));
    }
    return Value(std::shared_ptr<const Dict>(std::move(dict)));
  }

  const absl::string_view name_;
};

}  // namespace

absl::StatusOr<Value> FromJson(absl::string_view name, const nlohmann::ordered_json& json) {
  return Converter(name).Convert(json, 1);
}

}  // namespace baton::model::jinja
