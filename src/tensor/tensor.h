// Host tensors: Shape, TensorView (does not own), Tensor (owns a 64-byte aligned buffer).
// Device memory is the business of a backend.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>

#include "base/check.h"
#include "tensor/dtype.h"

namespace nibble {

/// Up to 6 sizes, outermost first. A scalar has rank 0.
class Shape {
 public:
  static constexpr int kRankMax = 6;
  Shape() = default;
  Shape(std::initializer_list<int64_t> sizes) : Shape(std::span(sizes.begin(), sizes.size())) {}
  explicit Shape(std::span<const int64_t> sizes);

  int rank() const { return rank_; }
  int64_t operator[](int axis) const {
    CHECK(axis >= 0 && axis < rank_, "axis ", axis, " of rank ", rank_);
    return sizes_[static_cast<size_t>(axis)];
  }
  /// Product of the sizes; 1 for a scalar.
  int64_t count() const;
  std::span<const int64_t> sizes() const { return {sizes_.data(), static_cast<size_t>(rank_)}; }
  bool operator==(const Shape& other) const;
  /// "[2, 3]".
  std::string text() const;

 private:
  std::array<int64_t, kRankMax> sizes_ = {};
  int rank_ = 0;
};

struct TensorView {
  const std::byte* data = nullptr;
  DType dtype = DType::f32;
  Shape shape;

  int64_t bytes() const { return dtype_bytes(dtype, shape.count()); }
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(data);
  }
};

/// 64-byte aligned host memory, uninitialised.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t bytes);
  std::byte* data() { return memory_.get(); }
  const std::byte* data() const { return memory_.get(); }
  int64_t bytes() const { return bytes_; }
  std::span<std::byte> span() { return {memory_.get(), static_cast<size_t>(bytes_)}; }

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte, Free> memory_;
  int64_t bytes_ = 0;
};

class Tensor {
 public:
  Tensor() = default;
  Tensor(DType dtype, Shape shape)
      : buffer_(dtype_bytes(dtype, shape.count())), dtype_(dtype), shape_(shape) {}
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t bytes() const { return buffer_.bytes(); }
  std::span<std::byte> span() { return buffer_.span(); }
  TensorView view() const { return {buffer_.data(), dtype_, shape_}; }
  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(buffer_.data());
  }
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(buffer_.data());
  }

 private:
  Buffer buffer_;
  DType dtype_ = DType::f32;
  Shape shape_;
};

}  // namespace nibble
