// Rounding a weight matrix to FP8: one scale per fused group, one per
// row, or one per 128 x 128 weights. Pure
// functions of the weights; NVFP4 is nvfp4_round.h. Formula: scale = amax / 448, code =
// e4m3(w / scale), both in F32, as compressed-tensors computes them for F32 weights.
#pragma once

#include <span>

#include "quantize/rounding/nvfp4_round.h"
#include "tensor/tensor.h"

namespace nibble {

/// Rows [N, K] of BF16, F16 or F32, magnitudes at most kWeightMax, under one finite positive scale
/// (CHECK). codes: [N, K]; never a NaN code; zero is code 0, what rounds to zero
/// keeps its sign.
RoundStatistics round_fp8_rows(const TensorView& weights, float scale, std::span<uint8_t> codes);

/// One scale per row [N]; a row of zeros has scale 1.
RoundStatistics round_fp8_channels(const TensorView& weights, std::span<uint8_t> codes,
                                   std::span<float> scales);

/// A band of at most 128 rows [N, K]: also yields scales [ceil(K / 128)]; a tile of zeros has
/// scale 1.
RoundStatistics round_fp8_band(const TensorView& weights, std::span<uint8_t> codes,
                               std::span<float> scales);

}  // namespace nibble
