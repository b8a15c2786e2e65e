// These members of GemmBlock are one K step on either matrix unit.

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
  if constexpr (has_bias(kOutput)) load_biases();
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
