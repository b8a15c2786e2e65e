// Few rows times weights with few bits: weights are decoded in registers and streamed once.

namespace nibble::cpu {
namespace {

/// NVFP4 weights as integers of one group and 16 rows.
struct LowNvfp4 {
  static constexpr int kColumns = 16;
  static constexpr int kBytes = 128;  // of a panel, for these columns
  static constexpr int kGroup = 16;
  Bytes weights[4];
  static LowNvfp4 load_unit(const std::byte* p) {
    LowNvfp4 unit;
    decode_integers(p, unit.weights[0], unit.weights[1]);
    decode_integers(p + 64, unit.weights[2], unit.weights[3]);
    return unit;
  }
  /// The exact sum over the group, times the scale of the activations.
  Vec multiply(const LowRow& row, int64_t k) const {
    const Ints dot = dot_bytes(broadcast_int(row.offsets[k / kLowGroup]), weights, row.codes + k);
    return mul(to_floats(dot), broadcast(row.scales[k / kLowGroup]));
  }
};

/// While a tile of panels is multiplied, the next one is fetched to the second cache: streams of 16
/// rows are too short for the processor to see that they go on.
inline void fetch_ahead(const std::byte* p) { __builtin_prefetch(p, 0, 2); }

template <int R, int P>
void low_nvfp4_tile(const LinearPanels& a, int64_t panel) {
  Vec sum[R][P];
  clear(sum);
  const std::byte* panels = panel_at(a, panel);
  const std::byte* scales = scales_at(a, panel);
  const int64_t ahead = P * a.panel_bytes;
  for (int64_t k = 0; k < a.k_padded; k += LowNvfp4::kColumns) {
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      const std::byte* at = panels + p * a.panel_bytes + k * 8;
      fetch_ahead(at + ahead);
      fetch_ahead(at + ahead + 64);
      const LowNvfp4 unit = LowNvfp4::load_unit(at);
      const Vec scale = group_scale<Nvfp4Format>(scales + p * a.scale_bytes, k);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) sum[r][p] = fma(unit.multiply(LowRow(a, r), k), scale, sum[r][p]);
    }
  }
  for (int r = 0; r < R; ++r)
    for (int p = 0; p < P; ++p) finish(a, r, panel + p, sum[r][p]);
}

/// Four columns of P panels of FP8 weights, in pairs of BF16.
template <int P>
struct LowFp8 {
  Pairs first[P];
  Pairs second[P];
  LowFp8(const LinearPanels& a, const std::byte* at) {
    for (int p = 0; p < P; ++p, at += a.panel_bytes) {
      fetch_ahead(at + P * a.panel_bytes);
      decode_fp8(at, first[p], second[p]);
    }
  }
};

inline uint32_t pair_at(const std::byte* x, int64_t k) {
  uint32_t pair;
  __builtin_memcpy(&pair, x + k * 2, sizeof pair);
  return pair;
}

/// Adds columns [k, end) to the sums.
template <int R, int P>
inline void multiply_fp8(const LinearPanels& a, int64_t panel, int64_t k, int64_t end,
                         Vec (&sum)[R][P]) {
  for (; k < end; k += 4) {
    const LowFp8<P> weights(a, panel_at(a, panel) + k * 16);
    for (int r = 0; r < R; ++r) {
      const std::byte* x = a.low_x + r * a.low_stride;
      const uint32_t x0 = pair_at(x, k);
      const uint32_t x1 = pair_at(x, k + 2);
      for (int p = 0; p < P; ++p)
        sum[r][p] = dot_pairs(dot_pairs(sum[r][p], weights.first[p], x0), weights.second[p], x1);
    }
  }
}

/// Without groups (kScaleGroup 0) a sum runs through all of K.
template <int kScaleGroup, int R, int P>
void low_fp8_tile(const LinearPanels& a, int64_t panel) {
  Vec sum[R][P];
  clear(sum);
  if constexpr (kScaleGroup == 0) {
    multiply_fp8(a, panel, 0, a.k_padded, sum);
  } else {
    for (int64_t k = 0; k < a.k_padded; k += kScaleGroup) {
      Vec part[R][P];
      clear(part);
      multiply_fp8(a, panel, k, k + kScaleGroup < a.k_padded ? k + kScaleGroup : a.k_padded, part);
      for (int p = 0; p < P; ++p) {
        const Vec scale = group_scale<Fp8Unit<128>>(scales_at(a, panel + p), k);
        for (int r = 0; r < R; ++r) sum[r][p] = fma(part[r][p], scale, sum[r][p]);
      }
    }
  }
  for (int r = 0; r < R; ++r)
    for (int p = 0; p < P; ++p) finish(a, r, panel + p, sum[r][p]);
}

/// Panels [panel, end) in tiles of P, the rest in halves. kScaleGroup 16 is NVFP4, others are FP8.
template <int kScaleGroup, int R, int P>
void low_direct(const LinearPanels& a, int64_t panel, int64_t end) {
  for (; panel + P <= end; panel += P) {
    if constexpr (kScaleGroup == 16) {
      low_nvfp4_tile<R, P>(a, panel);
    } else {
      low_fp8_tile<kScaleGroup, R, P>(a, panel);
    }
  }
  if constexpr (P > 1) low_direct<kScaleGroup, R, P / 2>(a, panel, end);
}

}  // namespace
}  // namespace nibble::cpu
