#include "tensor_archive.h"

#include <cstdint>
#include <fstream>
#include <stdexcept>

#include "nlohmann/json.hpp"

namespace baton::model {

std::unordered_map<std::string, ArchivedTensor> ReadTensorArchive(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  file.exceptions(std::ios::failbit | std::ios::badbit);
  uint64_t header_bytes = 0;
  file.read(reinterpret_cast<char*>(&header_bytes), sizeof(header_bytes));
  std::string header(header_bytes, '\0');
  file.read(header.data(), static_cast<std::streamsize>(header_bytes));
  const nlohmann::json entries = nlohmann::json::parse(header);

  std::unordered_map<std::string, ArchivedTensor> tensors;
  for (const auto& [name, entry] : entries.items()) {
    if (name == "__metadata__" || entry.at("dtype") != "F32") continue;
    const uint64_t begin = entry.at("data_offsets").at(0);
    const uint64_t end = entry.at("data_offsets").at(1);
    ArchivedTensor tensor = {.shape = entry.at("shape"),
                             .values = std::vector<float>((end - begin) / sizeof(float))};
    file.seekg(static_cast<std::streamoff>(sizeof(header_bytes) + header_bytes + begin));
    file.read(reinterpret_cast<char*>(tensor.values.data()), static_cast<std::streamsize>(end - begin));
    tensors.emplace(name, std::move(tensor));
  }
  return tensors;
}

}  // namespace baton::model
