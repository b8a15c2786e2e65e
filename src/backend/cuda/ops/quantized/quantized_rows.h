// Rows of inputs as codes, of `count` rows of weight.cols BF16 columns, padding included, as
// weight.activations has them. nvfp4: E2M1 codes, an E4M3 scale for every 16 columns, and a global
// scale, which is the file's input scale of the linear or made of the row alone:
//   codes   nibbles in the order of e2m1_nibbles (code_words.h), so that they meet weights as the
//           device stores them
//   scales  e4m3(G * amax_16 / 6), saturated; zero becomes 0.125; one row after the other or in
//           blocks (scale_blocks.h), where the matrix has them so
//   factors with GlobalOf::row: 1 / G of each row, G = 2688 / amax of the row. Else 1 / G is in the
//           weight's factors already (device_weights.h)
// fp8_token, fp8_group, fp8_tensor: E4M3 codes of x / scale, saturated:
//   codes   bytes in the order of e4m3_bytes (fp8_bytes.h)
//   factors the scale, amax / 448 (zero becomes 2^-23) of the row, or of every 128 columns of it;
//           fp8_tensor: none, the file's scale is in the weight's factors
//   Oracle: encode_nvfp4_activations and round_fp8_dynamic (tensor/activation_codec.h), bit for bit
//   (checks/quantized_rows_check.cu, checks/quantized_check.cu); a code of zero may have a sign
//   there and here alike. Bytes moved: each row once in, 9/32 or about half of it out. Any number
//   of rows, one thread block each; a row's bits do not depend on the others. Outputs may not
//   overlap x.
#pragma once

#include "backend/cuda/ops/linear/prefill_order.h"
#include "backend/cuda/ops/quantized/scale_blocks.h"
#include "backend/cuda/runtime/launcher.h"
#include "backend/cuda/weights/device_weights.h"

namespace nibble::cuda {

enum class ScaleOrder : uint8_t { rows, blocks };

/// Rows in NVFP4 or FP8, one after the other.
struct QuantizedInput {
  uint8_t* codes = nullptr;   // [rows][cols / 2], FP8: [rows][cols]; 16-byte aligned
  uint8_t* scales = nullptr;  // NVFP4: [rows][cols / 16], 16-byte aligned
  float* factors = nullptr;   // [rows][factors_each]; null: 1
  int32_t factors_each = 1;   // FP8: one for a row, or for every 128 columns of it
  ScaleOrder scale_order = ScaleOrder::rows;
  /// In blocks, the scales of row r of matrix e are those of row r + scale_shift[e]; null: r.
  const int32_t* scale_shift = nullptr;

  constexpr bool present() const { return codes != nullptr; }
};
/// Returns the bytes of one row with its scales and factor.
constexpr int64_t fp4_row_bytes(int64_t cols) { return cols / 2 + cols / 16 + 4; }
/// Returns the bytes of scales that `parts` groups of rows may have beyond those of their rows,
/// each in blocks of its own.
constexpr int64_t fp4_filling_bytes(int64_t parts, int64_t cols) {
  return parts * (kScaleBlockRows - 1) * (cols / 16);
}
/// Cuts rows of `cols` columns, a multiple of 256, out of memory of fp4_row_bytes() each, without
/// factors. Blocks of scales need fp4_filling_bytes() besides.
constexpr QuantizedInput cut_fp4_rows(uint8_t* memory, int64_t rows, int64_t cols,
                                      ScaleOrder order = ScaleOrder::rows) {
  return {.codes = memory, .scales = memory + rows * (cols / 2), .scale_order = order};
}

/// The same of rows in FP8, with a factor for every 128 columns at most.
constexpr int64_t fp8_row_bytes(int64_t cols) { return cols + cols / kFp8Block * 4; }
/// Cuts them as `activations` needs them; `cols` as above.
constexpr int32_t fp8_factors_each(ActivationFormat activations, int64_t cols) {
  return activations == ActivationFormat::fp8_group ? static_cast<int32_t>(cols / kFp8Block) : 1;
}
inline QuantizedInput cut_fp8_rows(uint8_t* memory, int64_t rows, int64_t cols,
                                   ActivationFormat activations) {
  const bool scaled = activations != ActivationFormat::fp8_tensor;
  return {.codes = memory,
          .factors = scaled ? reinterpret_cast<float*>(memory + rows * cols) : nullptr,
          .factors_each = fp8_factors_each(activations, cols)};
}

enum class GlobalOf : uint8_t { file, row };

struct QuantizeRows {
  DeviceLinear weight;  // its columns, activations and, where the file has one, input scale
  GlobalOf global = GlobalOf::file;  // of NVFP4
  int32_t count = 0;
  const uint16_t* x = nullptr;             // [rows][x_stride], 4-byte aligned
  int64_t x_stride = 0;                    // even
  ColumnOrder order = ColumnOrder::plain;  // packed: as prompts have it; plain: as generation does
  const int32_t* from = nullptr;           // [count], row of x; null: i / share
  int32_t share = 1;                       // adjacent rows of out that read one row of x
  const int32_t* to = nullptr;             // [count], row of out; null: i; NVFP4: negative: no row
  const int32_t* matrix = nullptr;         // [count]; null: the first of a stack
  QuantizedInput out;                      // with factors where they are made of the row
};
void quantize_rows(const QuantizeRows& args, const Launcher& launcher);
/// CHECKs what quantize_rows() asks of its arguments.
void check_rows(const QuantizeRows& args);

}  // namespace nibble::cuda
