// The GGUF reader on hostile bytes: it ends with a model or an error. A model's every byte must be readable.
#include <string>
#include <vector>

#include "gguf_builder.h"
#include "model/weights/gguf_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = baton::model::ParseGgufFile("fuzz.gguf", absl::MakeConstSpan(data, size));
  if (file.ok() && (*file)->digest().size() != 32) __builtin_trap();
  return 0;
}

extern "C" void BatonFuzzSeeds(std::vector<std::string>* seeds) {
  seeds->push_back(baton::model::TinyLlamaFile());
  seeds->push_back(baton::model::TinyLlamaMetadata().Build());
  baton::model::GgufBuilder old_version;
  old_version.version = 2;
  seeds->push_back(old_version.String("general.architecture", "llama").Int32s("k", {1, -1}).Build());
}
