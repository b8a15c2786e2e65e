// These members of GemmBlock make the left operand of weights. A lane (row, q) owns columns 16 q ..
// 16 q + 15 of the step; prefill_order.h says which instruction takes which.

/// Returns a 16-row slot: rows r and r + 8 of the fragment are two adjacent groups of eight lines
/// or, paired, the same eight features of gate and up.
__device__ int slot_of(int i) const {
  if constexpr (kWgmma) return warp_ + i;
  return (warp_ >> 1) * 4 + i;
}
__device__ int line_of(int i, int half) const {
  const int r = lane_ >> 2;
  return kPaired ? half * 128 + slot_of(i) * 8 + r : slot_of(i) * 16 + half * 8 + r;
}

/// Returns a line's scale for this lane's columns: of nvfp4 twice as BF16, times 2^118; of fp8 with
/// blocks as F32.
__device__ uint32_t line_scale(const uint8_t* stage, int line, int half) const {
  if constexpr (kFormat == Format::nvfp4) {
    constexpr uint32_t k2p119 = 0x7B007B00U;
    const uint32_t code = stage[Shape::kScales + line * 4 + (lane_ & 3)];
    return multiply_pair(multiply_pair(code * 0x00100010U, k2p119), k2p119);  // code * 2^-120
  }
  if constexpr (kFormat == Format::fp8) {
    if (!kBlocks) return 0;
    const DeviceLinear& w = kPaired && half == 1 ? gemm_.up : gemm_.weight;
    const int n = tile_.n0 + (kPaired ? 0 : slot_of(0) * 16);
    const int row = n < rows_of_matrix() ? n >> 7 : 0;
    const float* scales = w.factors + tile_.expert * w.factor_stride;
    return __float_as_uint(scales[row * ((gemm_.weight.cols + 127) / 128) + (k_step_ >> 1)]);
  }
  return 0;
}

/// Words has the columns of instruction j: one word of nvfp4, else two.
struct Words {
  uint32_t low, high;
};
__device__ static Words words_of(const uint32_t (&lane)[Shape::kWords], int j) {
  if constexpr (kFormat == Format::nvfp4) return {lane[j >> 1], 0};
  if constexpr (kFormat == Format::fp8) return {lane[j & 2], lane[(j & 2) + 1]};
  return {lane[Shape::kWords / 2 * (j >> 1) + (j & 1)],
          lane[Shape::kWords / 2 * (j >> 1) + Shape::kWords / 4 + (j & 1)]};
}

/// Loads all words of this lane in a line.
__device__ void load_line(const uint8_t* stage, int line, uint32_t (&words)[Shape::kWords]) const {
  const uint8_t* codes = stage + Shape::kCodes;
  const int q = lane_ & 3;
  if constexpr (kFormat == Format::nvfp4) {
    const uint2 v =
        *reinterpret_cast<const uint2*>(codes + Shape::offset(line, q >> 1) + (q & 1) * 8);
    words[0] = v.x;
    words[1] = v.y;
  } else {
#pragma unroll
    for (int c = 0; c < Shape::kChunks / 4; ++c) {
      const uint4 v = *reinterpret_cast<const uint4*>(
          codes + Shape::offset(line, q * (Shape::kChunks / 4) + c));
      words[c * 4] = v.x;
      words[c * 4 + 1] = v.y;
      words[c * 4 + 2] = v.z;
      words[c * 4 + 3] = v.w;
    }
  }
}

/// Loads the words of instruction j alone: the portable loop has no registers for a whole line.
__device__ Words load_words(const uint8_t* stage, int line, int j) const {
  const uint8_t* codes = stage + Shape::kCodes;
  const int q = lane_ & 3;
  const auto at = [&](int chunk, int word) {
    return *reinterpret_cast<const uint32_t*>(codes + Shape::offset(line, chunk) + word * 4);
  };
  if constexpr (kFormat == Format::nvfp4) return {at(q >> 1, (q & 1) * 2 + (j >> 1)), 0};
  if constexpr (kFormat == Format::fp8) return {at(q, j & 2), at(q, (j & 2) + 1)};
  return {at(2 * q + (j >> 1), j & 1), at(2 * q + (j >> 1), 2 + (j & 1))};
}

/// Returns two columns of instruction j as BF16: r = 0 gives its columns 2q and 2q + 1, r = 1
/// columns 2q + 8 and 2q + 9.
__device__ uint32_t operand_pair(const Words& words, int j, int r, uint32_t scale) const {
  const int i = 2 * (j & 1) + r;
  if constexpr (kFormat == Format::nvfp4) {
    return multiply_pair(e2m1_pairs(words.low).of[i], scale);
  }
  if constexpr (kFormat == Format::fp8) {
    constexpr uint32_t k2p120 = 0x7B807B80U;
    const uint32_t value =
        multiply_pair(e4m3_pairs(i < 2 ? words.low : words.high).of[i % 2], k2p120);
    if (!kBlocks) return value;
    const float factor = __uint_as_float(scale);
    return to_bf16_pair(low_bf16(value) * factor, high_bf16(value) * factor);
  }
  return __byte_perm(words.low, words.high, r == 0 ? 0x5410 : 0x7632);
}
