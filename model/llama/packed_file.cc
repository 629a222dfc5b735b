#include "model/llama/packed_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

#define XXH_INLINE_ALL
#include "xxhash.h"

namespace baton::model {
namespace {

constexpr char kMagic[8] = {'B', 'A', 'T', 'O', 'N', 'P', 'K', '1'};
constexpr mode_t kFileMode = 0644;  // mkostemp() lets nobody else read.
constexpr size_t kIoBytesMax = 64 << 20;

struct Header {
  char magic[8];
  uint64_t payload_bytes;
  uint64_t checksum;  // XXH3 of the payload.
  uint8_t padding[40];
};
static_assert(sizeof(Header) == 64);

absl::Status SystemError(const std::string& path, const char* call) {
  const absl::Status status = absl::ErrnoToStatus(errno, absl::StrCat(path, ": ", call));
  return absl::IsNotFound(status) ? status : absl::UnavailableError(status.message());
}

// Reads or writes all of `size` bytes; `io` is read(2) or write(2).
template <typename Io, typename Byte>
bool Whole(Io io, int fd, Byte* bytes, size_t size) {
  while (size > 0) {
    const ssize_t done = io(fd, bytes, std::min(size, kIoBytesMax));
    if (done < 0 && errno == EINTR) continue;
    if (done == 0) errno = EIO;
    if (done <= 0) return false;
    bytes += done;
    size -= static_cast<size_t>(done);
  }
  return true;
}

}  // namespace

absl::Status ReadPackedFile(const std::string& path, absl::Span<uint8_t> payload) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return SystemError(path, "open");
  const auto close_fd = absl::MakeCleanup([fd] { close(fd); });

  struct stat info;
  if (fstat(fd, &info) != 0) return SystemError(path, "fstat");
  Header header;
  if (static_cast<uint64_t>(info.st_size) != sizeof(header) + payload.size() ||
      !Whole(read, fd, reinterpret_cast<uint8_t*>(&header), sizeof(header)) ||
      std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0 ||
      header.payload_bytes != payload.size()) {
    return absl::DataLossError(absl::StrCat(path, " is not a packed file of ", payload.size(),
                                            " bytes"));
  }
  if (!Whole(read, fd, payload.data(), payload.size())) return SystemError(path, "read");
  if (XXH3_64bits(payload.data(), payload.size()) != header.checksum) {
    return absl::DataLossError(absl::StrCat(path, " has a wrong checksum"));
  }
  return absl::OkStatus();
}

absl::Status WritePackedFile(const std::string& path, absl::Span<const uint8_t> payload) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  if (error) return absl::UnavailableError(absl::StrCat(path, ": ", error.message()));

  std::string unfinished = path + ".XXXXXX";
  const int fd = mkostemp(unfinished.data(), O_CLOEXEC);
  if (fd < 0) return SystemError(unfinished, "mkostemp");
  auto discard = absl::MakeCleanup([&] { unlink(unfinished.c_str()); });
  Header header = {.payload_bytes = payload.size(),
                   .checksum = XXH3_64bits(payload.data(), payload.size())};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  const bool written =
      fchmod(fd, kFileMode) == 0 &&
      Whole(write, fd, reinterpret_cast<const uint8_t*>(&header), sizeof(header)) &&
      Whole(write, fd, payload.data(), payload.size());
  const absl::Status status = written ? absl::OkStatus() : SystemError(unfinished, "write");
  close(fd);
  RETURN_IF_ERROR(status);
  if (rename(unfinished.c_str(), path.c_str()) != 0) return SystemError(path, "rename");
  std::move(discard).Cancel();
  return absl::OkStatus();
}

}  // namespace baton::model
