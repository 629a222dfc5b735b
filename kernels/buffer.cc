#include "kernels/buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"

namespace baton::kernels {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;

}  // namespace

Buffer::Buffer(size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  const bool huge = bytes >= kHugePageBytes;
  // An anonymous mapping is page-aligned and zeroed; only the huge one needs room to align in.
  mapping_bytes_ = huge ? bytes + kHugePageBytes : bytes;
  mapping_ =
      mmap(nullptr, mapping_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(mapping_ != MAP_FAILED) << "cannot map " << mapping_bytes_ << " bytes";
  auto address = reinterpret_cast<uintptr_t>(mapping_);
  if (huge) {
    address = (address + kHugePageBytes - 1) & ~(kHugePageBytes - 1);
    // Advice only: without huge pages the results are the same and decoding is slower.
    madvise(reinterpret_cast<void*>(address), bytes, MADV_HUGEPAGE);
  }
  data_ = reinterpret_cast<uint8_t*>(address);
}

Buffer::~Buffer() {
  if (mapping_ != nullptr) munmap(mapping_, mapping_bytes_);
}

}  // namespace baton::kernels
