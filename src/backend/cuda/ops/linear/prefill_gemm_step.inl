// These members of GemmBlock are one K step on either matrix unit, and the epilogues.

__device__ void step() {
  wait_stage();
  if (k_step_ == 0) next_tile();
  const uint8_t* stage = shared_ + use_slot_ * Shape::kBytes;
  if constexpr (kWgmma)
    multiply_wgmma(stage);
  else
    multiply_portable(stage);
  if (++use_slot_ == kStages) {
    use_slot_ = 0;
    use_parity_ ^= 1;
  }
  if (++k_step_ == args_.k_steps) {
    finish_tile();
    k_step_ = 0;
  }
}

__device__ void wait_stage() {
  if constexpr (kWgmma) {
#ifdef NIBBLE_HAS_WGMMA
    load_next();
    barrier_wait(full_barrier(use_slot_), use_parity_);
    fence_async_proxy();
#endif
  } else {
    copy_async_wait<kDistance - 1>();
    __syncthreads();
    load_next();
  }
}

/// The next tile is located early, so that its latency hides under this tile.
__device__ void next_tile() {
  tile_ = next_tile_;
  use_index_ += static_cast<int>(gridDim.x);
  if (use_index_ < tiles_total_) next_tile_ = locate(use_index_);
}

__device__ void multiply_wgmma(const uint8_t* stage) {
#ifdef NIBBLE_HAS_WGMMA
#pragma unroll
  for (int i = 0; i < kM16; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int line = line_of(i, half);
      const uint32_t scale = line_scale(stage, line, half);
      uint32_t words[Shape::kWords];
      load_line(stage, line, words);
#pragma unroll
      for (int j = 0; j < 4; ++j)
#pragma unroll
        for (int r = 0; r < 2; ++r)
          fragments_[i][j][2 * r + half] = operand_pair(words_of(words, j), j, r, scale);
    }
  wgmma_fence();
  const uint64_t tokens = wgmma_descriptor(shared_address(stage));
  if (__shfl_sync(0xFFFFFFFFU, tile_.count, 0) <= 32)  // the compiler must see one way for a warp
    issue_wgmma<4>(fragments_, tokens);
  else
    issue_wgmma<16>(fragments_, tokens);
  wgmma_wait<0>();
  if (lane_ == 0) barrier_arrive(empty_barrier(use_slot_));
#endif
}

#ifdef NIBBLE_HAS_WGMMA
template <int kTiles>
__device__ void issue_wgmma(const uint32_t (&fragments)[kM16][4][4], uint64_t tokens) {
#pragma unroll
  for (int j = 0; j < 4; ++j)
#pragma unroll
    for (int i = 0; i < kM16; ++i)
      wgmma_bf16<kTiles, Accumulate::if_asked>(sum_[i], fragments[i][j], tokens + j * 2,
                                               (k_step_ | j) != 0);
  wgmma_commit();  // here: after the join of two branches it would become a group of its own
}
#endif

__device__ void multiply_portable(const uint8_t* stage) {
  if (k_step_ == 0) {
#pragma unroll
    for (int i = 0; i < kM16; ++i)
#pragma unroll
      for (int e = 0; e < kN8 * 4; ++e) sum_[i][e] = 0.0F;
  }
  const int token0 = first_token();
  if (token0 >= tile_.count) return;
  uint32_t scales[kM16][2];
#pragma unroll
  for (int i = 0; i < kM16; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      scales[i][half] = line_scale(stage, line_of(i, half), half);
  const uint32_t tokens = shared_address(stage);
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    uint32_t b[kN8 / 2][4];
#pragma unroll
    for (int p = 0; p < kN8 / 2; ++p) {
      const int row = token0 + p * 16 + (lane_ & 7) + (lane_ >> 4 << 3);
      load_matrix_4(b[p], tokens + swizzled_offset(row, 2 * j + (lane_ >> 3 & 1)));
    }
#pragma unroll
    for (int i = 0; i < kM16; ++i) {
      uint32_t a[4];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Words words = load_words(stage, line_of(i, half), j);
        a[half] = operand_pair(words, j, 0, scales[i][half]);
        a[2 + half] = operand_pair(words, j, 1, scales[i][half]);
      }
#pragma unroll
      for (int t = 0; t < kN8; ++t)
        mma_bf16(&sum_[i][t * 4], a, b[t >> 1][(t & 1) * 2], b[t >> 1][(t & 1) * 2 + 1]);
    }
  }
}

/// Returns the first token of this warp within the tile.
__device__ int first_token() const { return kWgmma ? 0 : (warp_ & 1) * 64; }

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
  if constexpr (kOutput == GemmOutput::f32)
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
#pragma unroll
      for (int e = 0; e < kN8 * 2; ++e) {
        const int token = first_token() + (e >> 1) * 8 + 2 * q + (e & 1);
        if (token >= tile_.count) continue;
        static_cast<float*>(gemm_.y)[(tile_.begin + token) * gemm_.y_stride + n] =
            sum_[i][(e >> 1) * 4 + half * 2 + (e & 1)] * scale;
      }
    }
}

__device__ void store_plain() {
#pragma unroll
  for (int i = 0; i < kM16; ++i) {
    const int n = tile_.n0 + slot_of(i) * 16;
    const float low = row_multiplier(gemm_.weight, n + (lane_ >> 2));
    const float high = row_multiplier(gemm_.weight, n + 8 + (lane_ >> 2));
#pragma unroll
    for (int t = 0; t < kN8; ++t) {
      const float* d = &sum_[i][t * 4];
      store_16(t, n, to_bf16_pair(d[0] * low, d[1] * low), to_bf16_pair(d[2] * high, d[3] * high));
    }
  }
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
