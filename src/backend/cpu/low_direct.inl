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
  /// The exact sum over the group, times the scale of the activations. `begin`: low_offset() of
  /// their row.
  Vec multiply(const LowRow& first, int64_t begin, int64_t k) const {
    const int64_t g = k / kLowGroup;
    const Ints dot = dot_bytes(broadcast_int(at_bytes(first.offsets + g, begin)), weights,
                               first.codes + begin + k);
    return mul(to_floats(dot), broadcast(at_bytes(first.scales + g, begin)));
  }
};

template <int R, int P>
void low_nvfp4_tile(const LinearPanels& a, int64_t panel) {
  PanelWindow<8, P> window(a, panel);
  const LowRow first(a.low_x, a.k_padded);
  int64_t rows[R];
  low_offsets(a, 0, rows);
  Vec sum[R][P];
  clear(sum);
  const std::byte* next = a.panels + (panel + P) * a.panel_bytes;
  for (int64_t begin = 0; begin < a.k_padded; begin += window.columns()) {
    window.open(begin);
    const int64_t columns = window.columns();
    for (int64_t k = 0; k < columns; k += LowNvfp4::kColumns) {
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) {
        const std::byte* ahead = next + p * a.panel_bytes + (begin + k) * 8;
        fetch_ahead(ahead);
        fetch_ahead(ahead + 64);
        const LowNvfp4 unit = LowNvfp4::load_unit(window.values(p) + k * 8);
        const Vec scale = group_scale<Nvfp4Format>(window.scales(p), k);
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r)
          sum[r][p] = fma(unit.multiply(first, rows[r], begin + k), scale, sum[r][p]);
      }
    }
  }
  for (int r = 0; r < R; ++r)
    for (int p = 0; p < P; ++p) finish(a, r, panel + p, sum[r][p]);
}

inline uint32_t pair_at(const std::byte* x, int64_t k) {
  uint32_t pair;
  __builtin_memcpy(&pair, x + k * 2, sizeof pair);
  return pair;
}

/// Adds columns [k, end) of the window that begins at column `begin` to the sums.
template <int R, int P>
inline void multiply_fp8(const LinearPanels& a, const PanelWindow<16, P>& window, int64_t begin,
                         int64_t k, int64_t end, const std::byte* next, Vec (&sum)[R][P]) {
  int64_t rows[R];
  low_offsets(a, 0, rows);
  for (; k < end; k += 4) {
    Pairs first[P];
    Pairs second[P];
    for (int p = 0; p < P; ++p) {
      fetch_ahead(next + p * a.panel_bytes + k * 16);
      decode_fp8(window.values(p) + (k - begin) * 16, first[p], second[p]);
    }
    for (int r = 0; r < R; ++r) {
      const std::byte* x = a.low_x + rows[r];
      const uint32_t x0 = pair_at(x, k);
      const uint32_t x1 = pair_at(x, k + 2);
      for (int p = 0; p < P; ++p)
        sum[r][p] = dot_pairs(dot_pairs(sum[r][p], first[p], x0), second[p], x1);
    }
  }
}

/// Without groups (kScaleGroup 0) a sum runs through all of K.
template <int kScaleGroup, int R, int P>
void low_fp8_tile(const LinearPanels& a, int64_t panel) {
  PanelWindow<16, P> window(a, panel);
  const std::byte* next = a.panels + (panel + P) * a.panel_bytes;
  Vec sum[R][P];
  clear(sum);
  for (int64_t begin = 0; begin < a.k_padded; begin += window.columns()) {
    window.open(begin);
    const int64_t end = begin + window.columns();
    if constexpr (kScaleGroup == 0) {
      multiply_fp8(a, window, begin, begin, end, next, sum);
    } else {
      for (int64_t k = begin; k < end; k += kScaleGroup) {
        Vec part[R][P];
        clear(part);
        multiply_fp8(a, window, begin, k, k + kScaleGroup < end ? k + kScaleGroup : end, next,
                     part);
        for (int p = 0; p < P; ++p) {
          const Vec scale = group_scale<Fp8Unit<128>>(window.scales(p), k - begin);
          for (int r = 0; r < R; ++r) sum[r][p] = fma(part[r][p], scale, sum[r][p]);
        }
      }
    }
  }
  for (int r = 0; r < R; ++r)
    for (int p = 0; p < P; ++p) finish(a, r, panel + p, sum[r][p]);
}

/// R rows times 16 rows of NVFP4 weights as files have them, for R up to kStoredDotRows:
/// low_stored.inl. Other numbers of rows go through a window.
template <int R>
void low_stored_tile(const LinearPanels& a, int64_t panel);

/// Panels [panel, end) in tiles of P, the rest in halves. kScaleGroup 16 is NVFP4, others are FP8.
template <int kScaleGroup, int R, int P>
void low_direct(const LinearPanels& a, int64_t panel, int64_t end) {
  if constexpr (kScaleGroup == 16 && R <= kStoredDotRows) {
    for (; a.stored && panel < end; ++panel) low_stored_tile<R>(a, panel);
  }
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
