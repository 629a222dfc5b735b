#include "router/model_loader.h"

#include <utility>

#include "base/status_macros.h"
#include "model/weights/model_file.h"

namespace baton::router {

absl::StatusOr<std::shared_ptr<const ServedModel>> LoadServedModel(const std::string& path,
                                                                   const std::string& served_name) {
  ASSIGN_OR_RETURN(const std::unique_ptr<model::ModelFile> file, model::ModelFile::Open(path));
  auto served = std::make_shared<ServedModel>();
  served->name = served_name.empty() ? file->name() : served_name;
  served->architecture = file->config().architecture;
  served->digest = file->digest();
  served->vocabulary_size = file->config().vocabulary_size;
  served->context_tokens = file->config().context_tokens;
  served->end_of_sequence_ids = file->config().end_of_sequence_ids;
  if (file->tokenizer() != nullptr) {
    ASSIGN_OR_RETURN(served->tokenizer, model::Tokenizer::Create(*file->tokenizer()));
  }
  if (served->tokenizer != nullptr && !file->chat_template().empty()) {
    ASSIGN_OR_RETURN(served->chat_template, model::ChatTemplate::Compile(file->chat_template()));
  }
  return served;
}

}  // namespace baton::router
