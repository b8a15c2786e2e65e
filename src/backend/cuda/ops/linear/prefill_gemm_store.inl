// These members of GemmBlock are the epilogues: what becomes of the sums of a tile.

/// Returns the factor of a row of the result: the global, tensor or row scale.
__device__ float row_multiplier(const DeviceLinear& w, int n) const {
  const float* factors = w.factors + tile_.expert * w.factor_stride;
  if constexpr (kFormat == Format::nvfp4) return factors[0] * kNvfp4Unit;
  if constexpr (kFormat == Format::fp8) {
    if (w.layout == FactorLayout::scalar) return factors[0];
    if (w.layout == FactorLayout::row && n < rows_of_matrix()) return factors[n];
  }
  return 1.0F;
}

__device__ void finish_tile() {
  if constexpr (kOutput == GemmOutput::f32 || kParts > 1 || kAdds)
    store_f32();
  else if constexpr (kPaired)
    store_paired();
  else
    store_plain();
}

__device__ void store_f32() {
  const int q = lane_ & 3;
#pragma unroll
  for (int i = 0; i < kM16; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int n = tile_.n0 + slot_of(i) * 16 + half * 8 + (lane_ >> 2);
      if (n >= rows_of_matrix()) continue;
      const float scale = row_multiplier(gemm_.weight, n);
      const auto token_of = [&](int e) { return first_token() + (e >> 1) * 8 + 2 * q + (e & 1); };
      float* y = static_cast<float*>(gemm_.y) + tile_.begin * gemm_.y_stride + n;
      // Numbers that are added to are loaded, some at a time, before one is stored.
      constexpr int kAtOnce = 8;
#pragma unroll
      for (int first = 0; first < kN8 * 2; first += kAtOnce) {
        float before[kAtOnce] = {};
        if constexpr (kAdds) {
#pragma unroll
          for (int e = 0; e < kAtOnce; ++e)
            if (token_of(first + e) < tile_.count)
              before[e] = y[token_of(first + e) * gemm_.y_stride] + bias_of(i, half);
        }
#pragma unroll
        for (int e = first; e < first + kAtOnce; ++e) {
          const float sum = sum_[i][(e >> 1) * 4 + half * 2 + (e & 1)] * scale;
          if (token_of(e) < tile_.count)
            y[token_of(e) * gemm_.y_stride] = kAdds ? before[e - first] + sum : sum;
        }
      }
    }
}

__device__ void store_plain() {
#pragma unroll
  for (int i = 0; i < kM16; ++i) {
    const int n = tile_.n0 + slot_of(i) * 16;
    const float low = row_multiplier(gemm_.weight, n + (lane_ >> 2));
    const float high = row_multiplier(gemm_.weight, n + 8 + (lane_ >> 2));
    const float bias_low = bias_of(i, 0);
    const float bias_high = bias_of(i, 1);
#pragma unroll
    for (int t = 0; t < kN8; ++t) {
      const float* d = &sum_[i][t * 4];
      store_16(t, n, to_bf16_pair(shaped(d[0] * low, bias_low), shaped(d[1] * low, bias_low)),
               to_bf16_pair(shaped(d[2] * high, bias_high), shaped(d[3] * high, bias_high)));
    }
  }
}

/// Loads the biases of this lane's rows of the tile, long before the epilogue wants them.
__device__ void load_biases() {
#pragma unroll
  for (int i = 0; i < kM16; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int n = tile_.n0 + slot_of(i) * 16 + half * 8 + (lane_ >> 2);
      biases_[i][half] = n < rows_of_matrix() ? gemm_.bias[n] : 0.0F;
    }
}
__device__ float bias_of(int i, int half) const {
  if constexpr (has_bias(kOutput)) return biases_[i][half];
  return 0.0F;
}

/// Returns what the output makes of a sum and the bias of its row.
__device__ static float shaped(float sum, float bias) {
  if constexpr (!has_bias(kOutput)) return sum;
  const float x = sum + bias;
  if constexpr (kOutput == GemmOutput::gelu_tanh) {
    // x (1 + tanh(u)) / 2 = x / (1 + exp(-2 u)); u = sqrt(2 / pi) (x + 0.044715 x^3)
    const float twice = 1.5957691216057308F * (x + 0.044715F * x * x * x);
    return __fdividef(x, 1.0F + __expf(-twice));
  }
  if constexpr (kOutput == GemmOutput::gelu_erf) return 0.5F * x * (1.0F + erff(x * 0.70710678F));
  return x;
}

/// silu(x) is NaN for NaN.
__device__ static float silu(float x) { return __fdividef(x, 1.0F + __expf(-x)); }

__device__ void store_paired() {
  const float gate = row_multiplier(gemm_.weight, tile_.n0);  // one scale a tensor when paired
  const float up = row_multiplier(gemm_.up, tile_.n0);
#pragma unroll
  for (int i = 0; i < kM16; ++i)
#pragma unroll
    for (int t = 0; t < kN8; ++t) {
      const float* d = &sum_[i][t * 4];
      const int n = tile_.n0 + packed_column(slot_of(i) * 8 + (lane_ >> 2));
      const bool by_row = kFormat == Format::fp8;
      const float g = by_row ? row_multiplier(gemm_.weight, n) : gate;
      const float u = by_row ? row_multiplier(gemm_.up, n) : up;
      const uint32_t turned = move_matrix_transposed(
          to_bf16_pair(silu(d[0] * g) * (d[2] * u), silu(d[1] * g) * (d[3] * u)));
      const int token = first_token() + t * 8 + (lane_ >> 2);
      const int feature = tile_.n0 + slot_of(i) * 8 + (lane_ & 3) * 2;
      if (token < tile_.count && feature < rows_of_matrix())
        *reinterpret_cast<uint32_t*>(static_cast<uint16_t*>(gemm_.y) +
                                     (tile_.begin + token) * gemm_.y_stride + feature) = turned;
    }
}

/// Stores sixteen features from n on of eight tokens. They come as two 8x8 fragments [feature,
/// token], which are transposed and then exchanged within pairs of lanes, so that a lane writes 8
/// bytes of a row.
__device__ void store_16(int t, int n, uint32_t low, uint32_t high) {
  const uint32_t a = move_matrix_transposed(low);   // features n + 2q, n + 2q + 1
  const uint32_t b = move_matrix_transposed(high);  // features n + 8 + 2q ...
  const bool odd = (lane_ & 1) != 0;
  const uint32_t traded = __shfl_xor_sync(0xFFFFFFFFU, odd ? a : b, 1);
  const uint2 out = odd ? make_uint2(traded, b) : make_uint2(a, traded);
  const int token = first_token() + t * 8 + (lane_ >> 2);
  const int feature = n + (odd ? 8 : 0) + (lane_ >> 1 & 1) * 4;
  if (token >= tile_.count || feature >= rows_of_matrix()) return;
  auto* y = static_cast<uint16_t*>(gemm_.y) + (tile_.begin + token) * gemm_.y_stride + feature;
  if (feature + 4 <= rows_of_matrix() && (gemm_.y_stride & 3) == 0) {
    *reinterpret_cast<uint2*>(y) = out;
  } else {
    const uint32_t words[2] = {out.x, out.y};
    for (int e = 0; e < 4 && feature + e < rows_of_matrix(); ++e)
      y[e] = static_cast<uint16_t>(words[e >> 1] >> (e & 1) * 16);
  }
}
