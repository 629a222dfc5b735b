// RETURN_IF_ERROR(status) and ASSIGN_OR_RETURN(variable, status_or): hand an error to the caller unchanged.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define RETURN_IF_ERROR(expression)                                        \
  do {                                                                     \
    if (absl::Status return_if_error_status = (expression);                \
        !return_if_error_status.ok())                                      \
      return return_if_error_status;                                       \
  } while (false)

#define BATON_CONCAT_INNER(a, b) a##b
#define BATON_CONCAT(a, b) BATON_CONCAT_INNER(a, b)
#define ASSIGN_OR_RETURN(variable, expression) \
  ASSIGN_OR_RETURN_IMPL(BATON_CONCAT(assign_or_return_, __LINE__), variable, expression)
#define ASSIGN_OR_RETURN_IMPL(result, variable, expression) \
  auto result = (expression);                               \
  if (!result.ok()) return std::move(result).status();      \
  variable = *std::move(result)
