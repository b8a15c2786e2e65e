// Rows of inputs in NVFP4: E2M1 codes, an E4M3 scale for every 16 columns, and a global scale,
// which is the file's input scale of the linear or made of the row alone. Of `count` rows of
// weight.cols BF16 columns, padding included, are made:
//   codes   nibbles in the order of e2m1_nibbles (code_words.h), so that they meet weights as the
//           device stores them
//   scales  e4m3(G * amax_16 / 6), saturated; zero becomes 0.125
//   factors with GlobalOf::row: 1 / G of each row, G = 2688 / amax of the row. Else 1 / G is in the
//           weight's factors already (device_weights.h)
//   Oracle: encode_nvfp4_activations (tensor/activation_codec.h), bit for bit
//   (checks/fp4_check.cu); a code of zero may have a sign there and here alike. Bytes moved:
//   each row once in, 9/32 of it out. Any number of rows, one thread block each; a row's bits do
//   not depend on the others. Outputs may not overlap x.
#pragma once

#include "backend/cuda/ops/linear/prefill_order.h"
#include "backend/cuda/runtime/launcher.h"
#include "backend/cuda/weights/device_weights.h"

namespace nibble::cuda {

/// Rows in NVFP4, one after the other.
struct Fp4Rows {
  uint8_t* codes = nullptr;   // [rows][cols / 2], 16-byte aligned
  uint8_t* scales = nullptr;  // [rows][cols / 16], 16-byte aligned
  float* factors = nullptr;   // [rows]; null: 1

  constexpr bool present() const { return codes != nullptr; }
};
/// Returns the bytes of one row with its scales and factor.
constexpr int64_t fp4_row_bytes(int64_t cols) { return cols / 2 + cols / 16 + 4; }
/// Cuts rows of `cols` columns, a multiple of 256, out of memory of fp4_row_bytes() each, without
/// factors.
constexpr Fp4Rows cut_fp4_rows(uint8_t* memory, int64_t rows, int64_t cols) {
  return {.codes = memory, .scales = memory + rows * (cols / 2)};
}

enum class GlobalOf : uint8_t { file, row };

struct QuantizeRows {
  DeviceLinear weight;  // its columns and, with GlobalOf::file, its input scale
  GlobalOf global = GlobalOf::file;
  int32_t count = 0;
  const uint16_t* x = nullptr;             // [rows][x_stride], 4-byte aligned
  int64_t x_stride = 0;                    // even
  ColumnOrder order = ColumnOrder::plain;  // packed: as prompts have it; plain: as generation does
  const int32_t* from = nullptr;           // [count], row of x; null: i / share
  int32_t share = 1;                       // adjacent rows of out that read one row of x
  const int32_t* to = nullptr;             // [count], row of out; null: i
  const int32_t* matrix = nullptr;         // [count]; null: the first of a stack
  Fp4Rows out;                             // with GlobalOf::row it has factors
};
void quantize_rows(const QuantizeRows& args, const Launcher& launcher);

}  // namespace nibble::cuda
