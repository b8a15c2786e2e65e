// Some blocks of rows at a time are put in order into scratch memory and copied back.
#include <algorithm>

#include "backend/cuda/ops/quantized/lay_blocks.h"
#include "backend/cuda/ops/quantized/scale_blocks.h"
#include "backend/cuda/runtime/launch.cuh"
#include "backend/cuda/weights/code_words.h"

namespace nibble::cuda {
namespace {

constexpr int kThreads = 256;
constexpr unsigned kBlocksMost = 4096;

struct LayRows {
  const uint32_t* codes;  // [rows][words]
  const uint8_t* scales;  // [rows][scales]
  int64_t rows;
  int64_t words;
  CodeOrder order;
  uint32_t* codes_to;
  uint8_t* scales_to;
};

/// Returns the row that comes to place `to`.
__device__ __forceinline__ int64_t row_at(int64_t to, CodeOrder order) {
  const int within = static_cast<int>(to % 64);
  return order == CodeOrder::paired_blocks ? to - within + packed_column(within) : to;
}

/// A word has eight codes, and two words have one scale.
__global__ void __launch_bounds__(kThreads) lay_blocks_kernel(const LayRows lay) {
  const int64_t scales = lay.words / 2;
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < lay.rows * lay.words;
       i += gridDim.x * int64_t{kThreads}) {
    const int64_t to = i / lay.words;
    const int64_t word = i % lay.words;
    const int64_t from = row_at(to, lay.order);
    lay.codes_to[i] = e2m1_nibbles(lay.codes[from * lay.words + word]);
    if (word % 2 == 0)
      lay.scales_to[scale_place(to, word / 2, scales)] = lay.scales[from * scales + word / 2];
  }
}

void copy(void* to, const void* from, int64_t bytes, const Launcher& launcher) {
  CUDA_CHECK(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice,
                             launcher.stream));
}

}  // namespace

void lay_blocks(const DeviceLinear& weight, int64_t matrices, CodeOrder order,
                std::span<uint8_t> scratch, const Launcher& launcher) {
  CHECK(weight.rows % kScaleBlockRows == 0 && weight.cols % kColumnPad == 0, weight.rows, " x ",
        weight.cols);
  const int64_t total = matrices * weight.rows;
  const int64_t most = std::ssize(scratch) / row_block_bytes(weight.cols) * kScaleBlockRows;
  CHECK(most > 0, "a scratch of ", scratch.size(), " bytes");
  const int64_t code_bytes = weight.cols / 2;
  const int64_t scale_bytes = weight.cols / kNvfp4Group;
  for (int64_t first = 0; first < total; first += most) {
    const int64_t rows = std::min(most, total - first);
    auto* codes = const_cast<uint8_t*>(weight.values) + first * code_bytes;
    auto* scales = const_cast<uint8_t*>(weight.scales) + first * scale_bytes;
    uint8_t* scales_to = scratch.data() + rows * code_bytes;
    const LayRows lay{.codes = reinterpret_cast<const uint32_t*>(codes),
                      .scales = scales,
                      .rows = rows,
                      .words = code_bytes / 4,
                      .order = order,
                      .codes_to = reinterpret_cast<uint32_t*>(scratch.data()),
                      .scales_to = scales_to};
    const int64_t blocks = (rows * lay.words + kThreads - 1) / kThreads;
    launch(lay_blocks_kernel, launcher.in_order(),
           static_cast<unsigned>(std::min<int64_t>(blocks, kBlocksMost)), kThreads, 0, lay);
    copy(codes, scratch.data(), rows * code_bytes, launcher);
    copy(scales, scales_to, rows * scale_bytes, launcher);
  }
}

}  // namespace nibble::cuda
