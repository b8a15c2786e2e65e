// Puts NVFP4 matrices into the order that kernels of compute capability 10 read (CodeOrder::blocks
// and paired_blocks), in place, once at load: codes as whole nibbles, scales in blocks
// (scale_blocks.h), rows of gate and up in packed order. Each byte is read and written twice.
// Oracle: the formulas of scale_blocks.h, code_words.h and prefill_order.h on the host
// (checks/blocks_check.cu).
#pragma once

#include <span>

#include "backend/cuda/runtime/launcher.h"
#include "backend/cuda/weights/device_weights.h"

namespace nibble::cuda {

/// Reorders a stack of `matrices` matrices of whole blocks of rows. `scratch` has place for one
/// block of rows at least: its codes and scales.
void lay_blocks(const DeviceLinear& weight, int64_t matrices, CodeOrder order,
                std::span<uint8_t> scratch, const Launcher& launcher);
/// Returns the bytes that a block of 128 rows of `cols` columns has.
constexpr int64_t row_block_bytes(int64_t cols) { return 128 * (cols / 2 + cols / 16); }

}  // namespace nibble::cuda
