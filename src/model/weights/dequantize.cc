// Rows of a loaded linear as F32, whatever its format. The formats themselves: tensor/nvfp4.h,
// fp8.h.
#include "model/weights/weights.h"
#include "tensor/fp8.h"
#include "tensor/nvfp4.h"

namespace nibble {
namespace {

void dequantize_fp8_row(const LinearWeight& weight, int64_t row, float* out) {
  const auto* codes = weight.values.as<uint8_t>() + row * weight.cols;
  const auto* scales = weight.scales.as<float>();
  if (weight.scheme.weights == WeightFormat::fp8_block) {
    const int64_t tiles = (weight.cols + kFp8Block - 1) / kFp8Block;
    decode_fp8_block_row(codes, scales + row / kFp8Block * tiles, weight.cols, out);
    return;
  }
  const bool per_row = weight.scheme.weights == WeightFormat::fp8_channel;
  decode_fp8_row(codes, scales[per_row ? row : 0], weight.cols, out);
}

void dequantize_row(const LinearWeight& weight, int64_t row, float* out) {
  const TensorView values = weight.values.view();
  switch (weight.scheme.weights) {
    case WeightFormat::plain:
      decode_plain(values.data + dtype_bytes(values.dtype, row * weight.cols), values.dtype,
                   weight.cols, out);
      return;
    case WeightFormat::nvfp4:
      decode_nvfp4_row(weight.values.as<uint8_t>() + row * weight.cols / 2,
                       weight.scales.as<uint8_t>() + row * weight.cols / kNvfp4Group,
                       weight.global_scale, weight.cols, out);
      return;
    case WeightFormat::fp8_tensor:
    case WeightFormat::fp8_channel:
    case WeightFormat::fp8_block:
      dequantize_fp8_row(weight, row, out);
      return;
  }
}

}  // namespace

void dequantize_rows(const LinearWeight& weight, int64_t row_begin, int64_t row_end, float* out) {
  CHECK(row_begin >= 0 && row_begin <= row_end && row_end <= weight.rows, "rows ", row_begin, "..",
        row_end, " of ", weight.rows);
  for (int64_t row = row_begin; row < row_end; ++row)
    dequantize_row(weight, row, out + (row - row_begin) * weight.cols);
}

}  // namespace nibble
