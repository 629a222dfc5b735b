#include "worker/loaded_model.h"

#include <string>

#include "absl/time/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "kernels/cpu_level.h"

namespace baton::worker {

absl::StatusOr<std::unique_ptr<LoadedModel>> LoadedModel::Load(const WorkerConfig& config) {
  const absl::Time start = absl::Now();
  std::unique_ptr<LoadedModel> loaded(new LoadedModel);
  ASSIGN_OR_RETURN(loaded->file_, model::ModelFile::Open(config.model_path));
  model::LlamaOptions options;
  ASSIGN_OR_RETURN(options.cpu_level, kernels::ParseCpuLevel(config.cpu_level));
  options.threads = config.threads;
  options.kv_type = config.kv_type;
  options.block_tokens = config.block_tokens;
  options.batch_rows_max = config.chunk_tokens + EffectiveRunningMax(config);
  options.cache_folder = config.cache_folder;
  ASSIGN_OR_RETURN(loaded->model_, model::LlamaModel::Load(*loaded->file_, options));
  loaded->view_ = {
      .model = loaded->model_.get(),
      .layout = loaded->model_->kv_layout(),
      .name = config.served_model_name.empty() ? loaded->file_->name() : config.served_model_name,
      .cpu_level = std::string(kernels::CpuLevelName(options.cpu_level))};
  LOG(INFO) << "model loaded" << base::LogField("path", config.model_path)
            << base::LogField("name", loaded->view_.name)
            << base::LogField("how", loaded->model_->description())
            << base::LogField("seconds", absl::ToDoubleSeconds(absl::Now() - start));
  return loaded;
}

}  // namespace baton::worker
