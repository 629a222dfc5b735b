// Owned memory for weights, activations and scratch: 64-byte aligned and zeroed. From 2 MiB on it
// is 2 MiB aligned and asks for huge pages, which is worth 11 to 31 % of a decode step (packed
// weights are read front to back every step).
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace baton::kernels {

// Movable, not copyable. Thread-compatible.
class Buffer {
 public:
  Buffer() = default;
  // CHECKs that the memory is there: sizes are bounded by what the caller validated.
  explicit Buffer(size_t bytes);
  ~Buffer();

  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(mapping_, other.mapping_);
    std::swap(mapping_bytes_, other.mapping_bytes_);
    return *this;
  }

  uint8_t* data() const { return data_; }
  size_t size() const { return bytes_; }

  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  uint8_t* data_ = nullptr;
  size_t bytes_ = 0;
  void* mapping_ = nullptr;  // data_ lies inside it, aligned.
  size_t mapping_bytes_ = 0;
};

}  // namespace baton::kernels
