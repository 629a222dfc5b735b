#include "model/chat_template/budget.h"

#include "absl/strings/str_cat.h"

namespace baton::model::jinja {

absl::Status Budget::OutOfOperations() const {
  return absl::ResourceExhaustedError(
      absl::StrCat("the chat template needs more than ", operations_max_, " operations"));
}

absl::Status Budget::OutOfBytes() const {
  return absl::ResourceExhaustedError(
      absl::StrCat("the chat template needs more than ", bytes_max_, " bytes"));
}

}  // namespace baton::model::jinja
