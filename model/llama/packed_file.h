// The packed weights of a model on disk: made by its first start, read by the later ones.
//
//   header (64 bytes): magic, payload bytes, checksum | payload
//
// The name of the file says what it is for (digest, layout, packing revision); size and checksum say that it is whole. A
// file is written beside its final name and renamed, so that readers see all of it or none.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace baton::model {

// Fills `payload`. NOT_FOUND: no such file. DATA_LOSS: another size, or a wrong checksum. UNAVAILABLE: the system refused.
absl::Status ReadPackedFile(const std::string& path, absl::Span<uint8_t> payload);

// Makes the folder if need be. UNAVAILABLE: the system refused; nothing is left behind.
absl::Status WritePackedFile(const std::string& path, absl::Span<const uint8_t> payload);

}  // namespace baton::model
