// y[m, n] = sum_k x[m, k] w[n, k] over packed panels. Two ways with the same chain, so the same
// bits: few rows decode weights in registers and stream them once; many rows decode 128 columns of
// a panel to a buffer that stays in L1 and run tiles of rows over it.
// The bound: one FMA per 16 weights and row; for one row also the bytes of the panels, once.
// Measured on one Zen 4 core (bench/cpu/README.md): BF16 one row 100 % of memory, many rows 81 % of
// FMA; NVFP4 one row 47 %, many 78 %; AVX2 the same or better for many rows.

namespace nibble::cpu {
namespace {

constexpr int kChunkColumns = 128;  // of the blocked product; = kFp8Block, a multiple of 16
constexpr int kChunkRows = 96;      // rows whose sums wait in L1 between chunks

// A format: kColumns of one unit, its bytes, and decode<pair> -> columns 2 pair and 2 pair + 1.
// kGroup: columns under one scale, 0 for none.

struct F32Unit {
  static constexpr int kColumns = 2;
  static constexpr int kBytes = 128;
  static constexpr int kGroup = 0;
  Vec first, second;
  static F32Unit load_unit(const std::byte* p) {
    const auto* values = reinterpret_cast<const float*>(p);
    return {load(values), load(values + 16)};
  }
  template <int kPair>
  void decode(Vec& even, Vec& odd) const {
    even = first;
    odd = second;
  }
};

struct Bf16Unit {
  static constexpr int kColumns = 2;
  static constexpr int kBytes = 64;
  static constexpr int kGroup = 0;
  Words words;
  static Bf16Unit load_unit(const std::byte* p) { return {load_words(p)}; }
  template <int kPair>
  void decode(Vec& even, Vec& odd) const {
    even = as_floats(shift_left<16>(words));
    odd = as_floats(mask_words(words, 0xFFFF0000U));
  }
};

/// E4M3 bits moved to the F32 fields; the multiplication by 2^(127-7) corrects the exponent bias
/// and makes subnormals right too.
inline Vec e4m3_fields_to_float(Words fields) {
  return mul(as_floats(fields), broadcast(0x1p120F));
}

template <int kScaleGroup>
struct Fp8Unit {
  static constexpr int kColumns = 4;
  static constexpr int kBytes = 64;
  static constexpr int kGroup = kScaleGroup;
  Words words;
  static Fp8Unit load_unit(const std::byte* p) { return {load_words(p)}; }
  template <int kByte>
  Vec column() const {
    const Words top = shift_left<24 - 8 * kByte>(words);
    return e4m3_fields_to_float(mask_words(shift_right_signed<4>(top), 0x87F00000U));
  }
  template <int kPair>
  void decode(Vec& even, Vec& odd) const {
    even = column<2 * kPair>();
    odd = column<2 * kPair + 1>();
  }
};

struct Nvfp4Format : Nvfp4Unit {
  static constexpr int kBytes = 8 * kColumns;
  static constexpr int kGroup = 16;
  static Nvfp4Format load_unit(const std::byte* p) { return {Nvfp4Unit::load(p)}; }
};

/// Scale of columns [k, k + kGroup) for the 16 rows of a panel. E4M3 scales are never negative
/// (PackedLinear refuses others), so their bits need no room for a sign.
template <typename Format>
inline Vec group_scale(const std::byte* scales, int64_t k) {
  if constexpr (Format::kGroup == 16) {
    return e4m3_fields_to_float(shift_left<20>(widen_bytes(scales + k)));  // 16 bytes per group
  } else {
    float scale;
    __builtin_memcpy(&scale, scales + k / Format::kGroup * 4, sizeof scale);
    return broadcast(scale);
  }
}

inline const std::byte* panel_at(const LinearPanels& a, int64_t panel) {
  return a.panels + panel * a.panel_bytes;
}
inline const std::byte* scales_at(const LinearPanels& a, int64_t panel) {
  return a.scales + panel * a.scale_bytes;
}

/// Final scale, then the store of one panel's part of one row; the last panel may be partial.
inline void finish(const LinearPanels& a, int64_t row, int64_t panel, Vec sum) {
  const int64_t column = panel * kPanelRows;
  const int64_t left = a.rows - column;
  const int lanes = left < kPanelRows ? static_cast<int>(left) : kPanelRows;
  if (a.final_scale != nullptr) sum = mul(sum, load(a.final_scale + column));
  float* y = a.y + row * a.y_stride + column;
  if (lanes == kPanelRows) {
    store(y, a.add ? add(load(y), sum) : sum);
  } else {
    store_n(y, a.add ? add(load_n(y, lanes), sum) : sum, lanes);
  }
}

template <typename Format, int kPair, int R, int P>
inline void multiply_pair(const Format (&unit)[P], const float* x, int64_t x_stride,
                          Vec (&sum)[R][P]) {
  if constexpr (R == 1) {  // many panels: decode one, use it, forget it
    const Vec xe = broadcast(x[2 * kPair]);
    const Vec xo = broadcast(x[2 * kPair + 1]);
    for (int p = 0; p < P; ++p) {
      Vec even;
      Vec odd;
      unit[p].template decode<kPair>(even, odd);
      sum[0][p] = fma(xo, odd, fma(xe, even, sum[0][p]));
    }
  } else {  // few panels: keep their weights, pass the rows by
    Vec even[P];
    Vec odd[P];
    for (int p = 0; p < P; ++p) unit[p].template decode<kPair>(even[p], odd[p]);
    for (int r = 0; r < R; ++r) {
      const Vec xe = broadcast(x[r * x_stride + 2 * kPair]);
      for (int p = 0; p < P; ++p) sum[r][p] = fma(xe, even[p], sum[r][p]);
    }
    for (int r = 0; r < R; ++r) {
      const Vec xo = broadcast(x[r * x_stride + 2 * kPair + 1]);
      for (int p = 0; p < P; ++p) sum[r][p] = fma(xo, odd[p], sum[r][p]);
    }
  }
}

/// Adds `columns` columns, whose units begin at `panels`, to the sums of R rows and P panels.
template <typename Format, int R, int P>
inline void multiply_columns(const LinearPanels& a, const std::byte* panels, int64_t columns,
                             const float* x, Vec (&sum)[R][P]) {
  for (int64_t k = 0; k < columns; k += Format::kColumns) {
    Format unit[P];
    for (int p = 0; p < P; ++p) unit[p] = Format::load_unit(panels + p * a.panel_bytes);
    multiply_pair<Format, 0>(unit, x, a.x_stride, sum);
    if constexpr (Format::kColumns >= 4) multiply_pair<Format, 1>(unit, x, a.x_stride, sum);
    if constexpr (Format::kColumns >= 8) {
      multiply_pair<Format, 2>(unit, x, a.x_stride, sum);
      multiply_pair<Format, 3>(unit, x, a.x_stride, sum);
    }
    panels += Format::kBytes;
    x += Format::kColumns;
  }
}

template <int R, int P>
inline void clear(Vec (&sum)[R][P]) {
  for (int r = 0; r < R; ++r)
    for (int p = 0; p < P; ++p) sum[r][p] = zero();
}

template <typename Format, int R, int P>
void direct_tile(const LinearPanels& a, int64_t panel) {
  const std::byte* panels = panel_at(a, panel);
  Vec sum[R][P];
  clear(sum);
  if constexpr (Format::kGroup == 0) {
    multiply_columns<Format>(a, panels, a.k_padded, a.x, sum);
  } else {
    const std::byte* scales = scales_at(a, panel);
    for (int64_t k = 0; k < a.k_padded; k += Format::kGroup) {
      Vec group[R][P];
      clear(group);
      if (Format::kGroup == 16 || k + Format::kGroup <= a.k_padded) {
        multiply_columns<Format>(a, panels, Format::kGroup, a.x + k, group);
      } else {
        multiply_columns<Format>(a, panels, a.k_padded - k, a.x + k, group);
      }
      panels += Format::kGroup / Format::kColumns * Format::kBytes;
      for (int p = 0; p < P; ++p) {
        const Vec scale = group_scale<Format>(scales + p * a.scale_bytes, k);
        for (int r = 0; r < R; ++r) sum[r][p] = fma(group[r][p], scale, sum[r][p]);
      }
    }
  }
  for (int r = 0; r < R; ++r)
    for (int p = 0; p < P; ++p) finish(a, r, panel + p, sum[r][p]);
}

/// Panels [panel, end) in tiles of P, the rest in halves.
template <typename Format, int R, int P>
void direct_panels(const LinearPanels& a, int64_t panel, int64_t end) {
  for (; panel + P <= end; panel += P) direct_tile<Format, R, P>(a, panel);
  if constexpr (P > 1) direct_panels<Format, R, P / 2>(a, panel, end);
}

/// A chunk of columns of P panels as F32 code values, [columns][P][16].
template <typename Format, int P>
void decode_chunk(const LinearPanels& a, int64_t panel, int64_t k_begin, int64_t k_end,
                  float* out) {
  for (int64_t k = k_begin; k < k_end; k += Format::kColumns) {
    for (int p = 0; p < P; ++p) {
      const auto unit =
          Format::load_unit(panel_at(a, panel + p) + k / Format::kColumns * Format::kBytes);
      float* to = out + ((k - k_begin) * P + p) * kPanelRows;
      const auto put = [&](int column, Vec even, Vec odd) {
        store(to + column * P * kPanelRows, even);
        store(to + (column + 1) * P * kPanelRows, odd);
      };
      Vec even;
      Vec odd;
      unit.template decode<0>(even, odd);
      put(0, even, odd);
      if constexpr (Format::kColumns >= 4) {
        unit.template decode<1>(even, odd);
        put(2, even, odd);
      }
      if constexpr (Format::kColumns >= 8) {
        unit.template decode<2>(even, odd);
        put(4, even, odd);
        unit.template decode<3>(even, odd);
        put(6, even, odd);
      }
    }
  }
}

/// The weights that a tile of the blocked product reads, and the sums it adds to.
struct Chunk {
  const float* weights;  // [columns][P][16]
  const float* scales;   // [groups][P][16], for formats with groups
  int columns;
  const float* x;
  int64_t x_stride;
  float* sums;  // [rows][P][16]
};

template <int R, int P>
inline void multiply_decoded(const Chunk& c, const float* x, int begin, int end, Vec (&sum)[R][P]) {
  for (int k = begin; k < end; ++k) {
    Vec w[P];
    for (int p = 0; p < P; ++p) w[p] = load(c.weights + (k * P + p) * kPanelRows);
    for (int r = 0; r < R; ++r) {
      const Vec xr = broadcast(x[r * c.x_stride + k]);
      for (int p = 0; p < P; ++p) sum[r][p] = fma(xr, w[p], sum[r][p]);
    }
  }
}

template <int kGroup, int R, int P>
void blocked_tile(const Chunk& c, int row) {
  const float* x = c.x + row * c.x_stride;
  float* sums = c.sums + row * P * kPanelRows;
  Vec sum[R][P];
  if constexpr (kGroup == 0) {
    for (int r = 0; r < R; ++r)
      for (int p = 0; p < P; ++p) sum[r][p] = load(sums + (r * P + p) * kPanelRows);
    multiply_decoded(c, x, 0, c.columns, sum);
    for (int r = 0; r < R; ++r)
      for (int p = 0; p < P; ++p) store(sums + (r * P + p) * kPanelRows, sum[r][p]);
  } else {
    for (int k = 0, group = 0; k < c.columns; k += kGroup, ++group) {
      clear(sum);
      multiply_decoded(c, x, k, k + kGroup < c.columns ? k + kGroup : c.columns, sum);
      for (int p = 0; p < P; ++p) {
        const Vec scale = load(c.scales + (group * P + p) * kPanelRows);
        for (int r = 0; r < R; ++r) {
          float* s = sums + (r * P + p) * kPanelRows;
          store(s, fma(sum[r][p], scale, load(s)));
        }
      }
    }
  }
}

template <int kGroup, int R, int P>
void blocked_rows(const Chunk& c, int row, int rows) {
  for (; row + R <= rows; row += R) blocked_tile<kGroup, R, P>(c, row);
  if constexpr (R > 1) {
    if (row < rows) blocked_rows<kGroup, R / 2, P>(c, row, rows);
  }
}

/// P panels times up to kChunkRows rows.
template <typename Format, int P>
void blocked_panels(const LinearPanels& a, int64_t panel, int64_t row_begin, int rows) {
  alignas(64) float weights[kChunkColumns * P * kPanelRows];
  alignas(64) float scales[kChunkColumns / 16 * P * kPanelRows];
  alignas(64) float sums[kChunkRows * P * kPanelRows];
  for (int i = 0; i < rows * P * kPanelRows; i += 16) store(sums + i, zero());
  for (int64_t k = 0; k < a.k_padded; k += kChunkColumns) {
    const int64_t end = k + kChunkColumns < a.k_padded ? k + kChunkColumns : a.k_padded;
    decode_chunk<Format, P>(a, panel, k, end, weights);
    if constexpr (Format::kGroup > 0) {
      int group = 0;
      for (int64_t g = k; g < end; g += Format::kGroup, ++group)
        for (int p = 0; p < P; ++p)
          store(scales + (group * P + p) * kPanelRows,
                group_scale<Format>(scales_at(a, panel + p), g));
    }
    const Chunk chunk = {
        weights,    scales, static_cast<int>(end - k), a.x + row_begin * a.x_stride + k,
        a.x_stride, sums};
    blocked_rows<Format::kGroup, kRowsPerTile, P>(chunk, 0, rows);
  }
  for (int r = 0; r < rows; ++r)
    for (int p = 0; p < P; ++p)
      finish(a, row_begin + r, panel + p, load(sums + (r * P + p) * kPanelRows));
}

template <typename Format>
void blocked_product(const LinearPanels& a) {
  for (int64_t row = 0; row < a.x_rows; row += kChunkRows) {
    const int64_t left = a.x_rows - row;
    const int rows = left < kChunkRows ? static_cast<int>(left) : kChunkRows;
    int64_t panel = a.panel_begin;
    for (; panel + kPanelsPerTile <= a.panel_end; panel += kPanelsPerTile)
      blocked_panels<Format, kPanelsPerTile>(a, panel, row, rows);
    for (; panel < a.panel_end; ++panel) blocked_panels<Format, 1>(a, panel, row, rows);
  }
}

template <typename Format>
void linear_of(const LinearPanels& a) {
  switch (a.x_rows) {
    case 1:
      return direct_panels<Format, 1, kPanelsDirect>(a, a.panel_begin, a.panel_end);
    case 2:
      return direct_panels<Format, 2, kPanelsFewRows>(a, a.panel_begin, a.panel_end);
    case 3:
      return direct_panels<Format, 3, kPanelsFewRows>(a, a.panel_begin, a.panel_end);
    case kRowsDirectMax:
      return direct_panels<Format, 4, kPanelsFewRows>(a, a.panel_begin, a.panel_end);
    default:
      return blocked_product<Format>(a);
  }
}

template <typename Format>
void unpack_row_of(const LinearPanels& a, int64_t row, float* out) {
  alignas(64) float columns[kChunkColumns * kPanelRows];
  alignas(64) float scale[kPanelRows];
  const int64_t panel = row / kPanelRows;
  const auto lane = static_cast<int>(row % kPanelRows);
  for (int64_t k = 0; k < a.k_padded; k += kChunkColumns) {
    const int64_t end = k + kChunkColumns < a.k_padded ? k + kChunkColumns : a.k_padded;
    decode_chunk<Format, 1>(a, panel, k, end, columns);
    for (int64_t i = k; i < end; ++i) {
      float value = columns[(i - k) * kPanelRows + lane];
      if constexpr (Format::kGroup > 0) {
        store(scale, group_scale<Format>(scales_at(a, panel), i / Format::kGroup * Format::kGroup));
        value *= a.final_scale != nullptr ? scale[lane] * a.final_scale[row] : scale[lane];
      } else if (a.final_scale != nullptr) {
        value *= a.final_scale[row];
      }
      out[i] = value;
    }
  }
}

/// Calls f with a null pointer of the format's type.
template <typename F>
void with_format(PanelFormat format, const F& f) {
  switch (format) {
    case PanelFormat::f32:
      return f(static_cast<F32Unit*>(nullptr));
    case PanelFormat::bf16:
      return f(static_cast<Bf16Unit*>(nullptr));
    case PanelFormat::fp8:
      return f(static_cast<Fp8Unit<0>*>(nullptr));
    case PanelFormat::fp8_block:
      return f(static_cast<Fp8Unit<128>*>(nullptr));
    case PanelFormat::nvfp4:
      return f(static_cast<Nvfp4Format*>(nullptr));
  }
}

void linear(const LinearPanels& args) {
  with_format(args.format, [&]<typename Format>(Format*) { linear_of<Format>(args); });
}

void unpack_row(const LinearPanels& args, int64_t row, float* out) {
  with_format(args.format,
              [&]<typename Format>(Format*) { unpack_row_of<Format>(args, row, out); });
}

}  // namespace
}  // namespace nibble::cpu
