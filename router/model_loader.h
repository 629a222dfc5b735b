// Reads what a router serves out of a model file.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "router/served_model.h"

namespace baton::router {

// Reads the metadata of the model at `path`; `served_name` empty: the file's own name. A template
// that does not compile is an error here, never a silent other template.
absl::StatusOr<std::shared_ptr<const ServedModel>> LoadServedModel(const std::string& path,
                                                                   const std::string& served_name);

}  // namespace baton::router
