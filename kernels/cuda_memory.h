// Host memory that a CUDA kernel may use, for tests of the CUDA ops. Only in builds with the
// toolkit.
#pragma once

#include <cstddef>

namespace baton::kernels {

// False where there is no device or no driver.
bool CudaDevicePresent();

// Waits until the device has done what it was given; CHECKs that it went well.
void CudaSynchronize();

// Makes [data, data + bytes) readable and writable from the device at the same addresses, as long
// as it lives.
class CudaVisible {
 public:
  CudaVisible(void* data, size_t bytes);
  ~CudaVisible();
  CudaVisible(const CudaVisible&) = delete;
  CudaVisible& operator=(const CudaVisible&) = delete;

 private:
  void* data_;
};

}  // namespace baton::kernels
