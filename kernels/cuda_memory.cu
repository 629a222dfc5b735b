#include "kernels/cuda_memory.h"

#include <cuda_runtime.h>

#include "base/check.h"

namespace baton::kernels {

bool CudaDevicePresent() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

void CudaSynchronize() {
  const cudaError_t error = cudaDeviceSynchronize();
  CHECK(error == cudaSuccess) << cudaGetErrorString(error);
}

CudaVisible::CudaVisible(void* data, size_t bytes) : data_(data) {
  const cudaError_t error = cudaHostRegister(data, bytes, cudaHostRegisterDefault);
  CHECK(error == cudaSuccess) << cudaGetErrorString(error);
}

CudaVisible::~CudaVisible() { cudaHostUnregister(data_); }

}  // namespace baton::kernels
