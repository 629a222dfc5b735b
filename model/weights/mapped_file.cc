#include "model/weights/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace baton::model {
namespace {

absl::Status SystemError(const std::string& path, const char* call) {
  const absl::Status status = absl::ErrnoToStatus(errno, absl::StrCat(path, ": ", call));
  if (absl::IsNotFound(status)) return status;
  return absl::UnavailableError(status.message());
}

}  // namespace

absl::StatusOr<std::unique_ptr<MappedFile>> MappedFile::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return SystemError(path, "open");
  const auto close_fd = absl::MakeCleanup([fd] { close(fd); });

  struct stat info;
  if (fstat(fd, &info) != 0) return SystemError(path, "fstat");
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file"));
  }
  if (info.st_size == 0) return absl::InvalidArgumentError(absl::StrCat(path, " is empty"));

  const auto size = static_cast<size_t>(info.st_size);
  void* const memory = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return SystemError(path, "mmap");
  return std::unique_ptr<MappedFile>(
      new MappedFile(absl::MakeConstSpan(static_cast<const uint8_t*>(memory), size)));
}

MappedFile::~MappedFile() { munmap(const_cast<uint8_t*>(bytes_.data()), bytes_.size()); }

absl::StatusOr<std::string> ReadTextFile(const std::string& path, uint64_t bytes_max) {
  ASSIGN_OR_RETURN(const std::unique_ptr<MappedFile> file, MappedFile::Open(path));
  if (file->bytes().size() > bytes_max) {
    return absl::InvalidArgumentError(absl::StrCat(path, " has ", file->bytes().size(),
                                                   " bytes, must have at most ", bytes_max));
  }
  return std::string(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
}

}  // namespace baton::model
