// The parts that checks of kernels share: inputs that host and device compute from the same hash,
// so that a reference needs no copies; error measures; timing. Device memory is poisoned with NaN
// patterns.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include "backend/cuda/checks/opened_device.h"
#include "backend/cuda/checks/part_runner.h"
#include "backend/cuda/checks/tally.h"
#include "backend/cuda/ptx/bf16.cuh"
#include "backend/cuda/runtime/launcher.h"
#include "backend/cuda/selection.h"

namespace nibble::checks {

/// Throws CardFailure: what follows would be computed from nothing.
inline void must(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw CardFailure(concat(what, ": ", cudaGetErrorString(error)));
}

/// Launches on the default stream of the device, with only the kernels that run from compute
/// capability 8.0 up or with less shared memory for a block where a check asks for it.
using Kernels = cuda::Architecture::Kernels;
inline cuda::Launcher launcher_of(Kernels kernels, int shared_bytes = 0) {
  cuda::Launcher launcher = cuda::launcher_of(
      opened_device(),
      {.shared_bytes = shared_bytes, .portable_kernels = kernels == Kernels::portable});
  launcher.stream = nullptr;
  return launcher;
}

__host__ __device__ inline uint32_t hash_bits(uint32_t seed, uint64_t i) {
  uint64_t x = (i + 1) * 0x9E3779B97F4A7C15ULL + seed * 0xD1B54A32D192ED03ULL;
  x ^= x >> 32;
  x *= 0xD6E8FEB86659FD93ULL;
  x ^= x >> 32;
  x *= 0xD6E8FEB86659FD93ULL;
  return static_cast<uint32_t>(x >> 32);
}

/// About normal, standard deviation near 1: a sum of four bytes.
__host__ __device__ inline float hash_normal(uint32_t seed, uint64_t i) {
  const uint32_t b = hash_bits(seed, i);
  const int sum = static_cast<int>((b & 255) + (b >> 8 & 255) + (b >> 16 & 255) + (b >> 24));
  return static_cast<float>(sum - 510) / 148.0F;
}
__host__ __device__ inline float round_bf16(float x) {
  return __bfloat162float(__float2bfloat16(x));
}

__host__ __device__ inline float float_of(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}
__host__ __device__ inline double bf16_value(uint16_t bits) {
  return float_of(static_cast<uint32_t>(bits) << 16);
}
/// The number that an E4M3 code in the low bits stands for; its NaN counts as 480.
__host__ __device__ inline float e4m3_value(uint32_t code) {
  const uint32_t exponent = code >> 3 & 15;
  const float size =
      exponent == 0 ? (code & 7) * 0x1p-9F : float_of((exponent + 120) << 23 | (code & 7) << 20);
  return (code & 0x80) != 0 ? -size : size;
}
__host__ __device__ inline double e2m1_value(uint32_t code) {
  constexpr double kSizes[8] = {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0};
  return (code & 8) != 0 ? -kSizes[code & 7] : kSizes[code & 7];
}

/// Returns where column c of an input of generation arithmetic lies in its row.
__host__ __device__ constexpr int placed(int c) { return (c & ~7) | (c & 3) << 1 | (c >> 2 & 1); }
inline double silu_of(double x) { return x / (1.0 + std::exp(-x)); }

/// Device memory of n elements, filled with NaN bytes.
template <typename T>
T* device_array(int64_t n) {
  void* p = nullptr;
  const size_t bytes = static_cast<size_t>(n) * sizeof(T) + 256;
  must(cudaMalloc(&p, bytes), "cudaMalloc");
  must(cudaMemset(p, 0xFF, bytes), "cudaMemset");
  return static_cast<T*>(p);
}

template <typename T>
std::vector<T> to_host(const T* from, int64_t n) {
  std::vector<T> out(static_cast<size_t>(n));
  must(cudaMemcpy(out.data(), from, static_cast<size_t>(n) * sizeof(T), cudaMemcpyDeviceToHost),
       "read back");
  return out;
}
template <typename T>
T* to_device(const std::vector<T>& from) {
  T* to = device_array<T>(static_cast<int64_t>(from.size()));
  must(cudaMemcpy(to, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice), "upload");
  return to;
}

template <typename F>
__global__ void fill_kernel(F f, int64_t n) {
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < n;
       i += int64_t{gridDim.x} * blockDim.x)
    f(i);
}
inline void fill_normal(uint16_t* to, int64_t n, uint32_t seed, float scale) {
  fill_kernel<<<1024, 256>>>(
      [=] __device__(int64_t i) { to[i] = cuda::to_bf16(scale * hash_normal(seed, i)); }, n);
}
inline void fill_normal(float* to, int64_t n, uint32_t seed, float scale, float shift = 0.0F) {
  fill_kernel<<<1024, 256>>>(
      [=] __device__(int64_t i) { to[i] = scale * hash_normal(seed, i) + shift; }, n);
}
inline void fill_bytes(uint8_t* to, int64_t n, uint32_t seed, uint32_t mask) {
  fill_kernel<<<1024, 256>>>(
      [=] __device__(int64_t i) { to[i] = static_cast<uint8_t>(hash_bits(seed, i) & mask); }, n);
}

/// ||out - reference|| / ||reference||; NaN never passes.
struct Error {
  double difference = 0.0;
  double reference = 0.0;
  void add(double out, double want) {
    difference += (out - want) * (out - want);
    reference += want * want;
  }
  double value() const { return std::sqrt(difference / reference); }
};

/// Median microseconds of one call: five batches of `calls`.
inline double time_us(const std::function<void()>& run, int calls = 10) {
  run();
  must(cudaDeviceSynchronize(), "warm up");
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  std::vector<double> times;
  for (int batch = 0; batch < 5; ++batch) {
    cudaEventRecord(begin);
    for (int i = 0; i < calls; ++i) run();
    cudaEventRecord(end);
    must(cudaEventSynchronize(end), "timing");
    float ms = 0.0F;
    cudaEventElapsedTime(&ms, begin, end);
    times.push_back(ms * 1000.0 / calls);
  }
  std::sort(times.begin(), times.end());
  return times[2];
}

}  // namespace nibble::checks
