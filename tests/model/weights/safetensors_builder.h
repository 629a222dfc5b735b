// Writes safetensors files for tests.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

namespace baton::model {

// u64 length, header (padded with spaces to 8 bytes), data.
inline std::string SafetensorsFileBytes(std::string header, const std::string& data) {
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const uint64_t length = header.size();
  std::string file(sizeof(length), '\0');
  std::memcpy(file.data(), &length, sizeof(length));
  return file + header + data;
}

}  // namespace baton::model
