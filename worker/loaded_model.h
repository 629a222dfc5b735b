// The model of a file, for worker processes.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "model/llama/llama_model.h"
#include "model/weights/model_file.h"
#include "worker/worker_config.h"
#include "worker/worker_model.h"

namespace baton::worker {

// A file and the model packed from it.
class LoadedModel {
 public:
  // Logs what was loaded and on which CPU level. Errors as of ModelFile::Open() and LlamaModel::Load().
  static absl::StatusOr<std::unique_ptr<LoadedModel>> Load(const WorkerConfig& config);

  const WorkerModel& view() const { return view_; }

 private:
  LoadedModel() = default;
  std::unique_ptr<model::ModelFile> file_;
  std::unique_ptr<model::LlamaModel> model_;
  WorkerModel view_;
};

}  // namespace baton::worker
