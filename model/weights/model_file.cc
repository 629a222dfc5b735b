#include "model/weights/model_file.h"

#include <sys/stat.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "model/weights/gguf_file.h"
#include "model/weights/safetensors_file.h"

namespace baton::model {

absl::StatusOr<std::unique_ptr<ModelFile>> ModelFile::Open(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return absl::ErrnoToStatus(errno, path);
  return S_ISDIR(info.st_mode) ? OpenSafetensorsFolder(path) : OpenGgufFile(path);
}

}  // namespace baton::model
