// Operands of products by tensor memory, made of those of other products, for the checks of both
// kinds.
#pragma once

#include <algorithm>
#include <span>

#include "backend/cuda/checks/fp4_check.h"
#include "backend/cuda/checks/quantized_product.h"
#include "backend/cuda/ops/quantized/lay_blocks.h"
#include "backend/cuda/ops/quantized/scale_blocks.h"
#include "base/concat.h"

namespace nibble::checks {

/// The way of products by tensor memory, or by software in its place.
inline cuda::Architecture::Fp4 by_tensor_memory(const cuda::Architecture& card) {
  return card.has_tensor_memory() ? cuda::Architecture::Fp4::machine
                                  : cuda::Architecture::Fp4::blocks;
}

template <typename T>
T* copied(const T* from, int64_t count) {
  auto* to = device_array<T>(count);
  must(cudaMemcpy(to, from, static_cast<size_t>(count) * sizeof(T), cudaMemcpyDeviceToDevice),
       "copy");
  return to;
}

/// A copy of `matrices` matrices in blocks, put in order some blocks of rows at a time.
inline cuda::DeviceLinear laid(const cuda::DeviceLinear& weight, int64_t matrices,
                               cuda::CodeOrder order, int blocks_at_once,
                               const cuda::Launcher& launcher) {
  const int64_t rows = matrices * weight.rows;
  cuda::DeviceLinear copy = weight;
  copy.values = copied(weight.values, rows * weight.cols / 2);
  copy.scales = copied(weight.scales, rows * weight.cols / 16);
  const int64_t bytes = blocks_at_once * cuda::row_block_bytes(weight.cols);
  auto* scratch = device_array<uint8_t>(bytes);
  lay_blocks(copy, matrices, order, {scratch, static_cast<size_t>(bytes)}, launcher);
  must(cudaDeviceSynchronize(), "blocks");
  cudaFree(scratch);
  copy.order = order;
  return copy;
}
inline void free_copy(const cuda::DeviceLinear& weight) {
  cudaFree(const_cast<uint8_t*>(weight.values));
  cudaFree(const_cast<uint8_t*>(weight.scales));
}

/// The scales of rows of x in blocks; those of row i are those of row places[i].
inline uint8_t* blocked_scales(const QuantizedSide& x, const std::vector<int32_t>& places) {
  const int64_t scales = x.cols / 16;
  const int64_t rows = places.empty() ? 0 : *std::ranges::max_element(places) + 1;
  auto* to = device_array<uint8_t>(cuda::scale_block_rows(rows) * scales);
  const int32_t* place = to_device(places);
  const uint8_t* from = x.scales;
  fill_kernel<<<256, 256>>>(
      [=] __device__(int64_t i) {
        to[cuda::scale_place(place[i / scales], i % scales, scales)] = from[i];
      },
      std::ssize(places) * scales);
  must(cudaDeviceSynchronize(), "scales");
  cudaFree(const_cast<int32_t*>(place));
  return to;
}

/// A product of `matrices` matrices in blocks; row i of x, of matrix e, has the scales of row
/// i + shifts[e].
struct BlockProduct {
  cuda::DeviceLinear weight, up;
  uint8_t* scales = nullptr;

  BlockProduct(const QuantizedProduct& p, int64_t matrices, std::span<const int32_t> shifts,
               const cuda::Launcher& launcher) {
    constexpr int kAtOnce = 8;
    const bool paired = p.output == QuantizedOutput::swiglu;
    const auto order = paired ? cuda::CodeOrder::paired_blocks : cuda::CodeOrder::blocks;
    weight = laid(linear_of(p.w, p.n), matrices, order, kAtOnce, launcher);
    if (paired) up = laid(linear_of(p.up, p.n), matrices, order, kAtOnce, launcher);
    std::vector<int32_t> places = p.x_rows;
    for (size_t i = 0; i < places.size(); ++i) places[i] += shifts[p.matrices[i]];
    scales = blocked_scales(p.x, places);
  }
  ~BlockProduct() {
    free_copy(weight);
    free_copy(up);
    cudaFree(scales);
  }
  BlockProduct(const BlockProduct&) = delete;
  BlockProduct& operator=(const BlockProduct&) = delete;

  QuantizedOutcome run(const QuantizedProduct& p,
                       const std::function<void(QuantizedGemm&)>& launch_it) const {
    return checks::run(p, [&](const QuantizedGemm& in_rows) {
      QuantizedGemm gemm = in_rows;
      gemm.weight = weight;
      gemm.up = up;
      gemm.x.scales = scales;
      gemm.x.scale_order = cuda::ScaleOrder::blocks;
      launch_it(gemm);
    });
  }
};

}  // namespace nibble::checks
