// y[m, n] = sum_k x[m, k] w[n, k] over packed panels. Two ways with the same chain, so the same
// bits: few rows decode weights in registers and stream them once; many rows decode 128 columns of
// a panel to a buffer that stays in L1 and run tiles of rows over it.
// The bound: one FMA per 16 weights and row; for one row also the bytes of the panels, once.
// Measured on one Zen 4 core (bench/cpu/README.md): BF16 one row 100 % of memory, many rows 81 % of
// FMA; NVFP4 one row 47 %, many 78 %; AVX2 the same or better for many rows.

namespace nibble::cpu {
namespace {

constexpr int kChunkRows = 96;  // rows whose sums wait in L1 between chunks

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

/// Units of P panels, `stride` bytes apart, and the inputs that meet them.
struct Columns {
  const std::byte* panels;
  int64_t stride;
  const float* x;
  int64_t x_stride;
};

/// Adds `count` columns to the sums of R rows and P panels.
template <typename Format, int R, int P>
inline void multiply_columns(Columns c, int64_t count, Vec (&sum)[R][P]) {
  for (int64_t k = 0; k < count; k += Format::kColumns) {
    Format unit[P];
    for (int p = 0; p < P; ++p) unit[p] = Format::load_unit(c.panels + p * c.stride);
    multiply_pair<Format, 0>(unit, c.x, c.x_stride, sum);
    if constexpr (Format::kColumns >= 4) multiply_pair<Format, 1>(unit, c.x, c.x_stride, sum);
    if constexpr (Format::kColumns >= 8) {
      multiply_pair<Format, 2>(unit, c.x, c.x_stride, sum);
      multiply_pair<Format, 3>(unit, c.x, c.x_stride, sum);
    }
    c.panels += Format::kBytes;
    c.x += Format::kColumns;
  }
}

template <int R, int P>
inline void clear(Vec (&sum)[R][P]) {
  for (int r = 0; r < R; ++r)
    for (int p = 0; p < P; ++p) sum[r][p] = zero();
}

/// Adds columns [k, end) of an open window.
template <typename Format, int R, int P>
inline void multiply_window(const LinearPanels& a, const WindowOf<Format, P>& window, int64_t k,
                            int64_t end, Vec (&sum)[R][P]) {
  Columns columns = {window.values(0), window.value_stride(), a.x + k, a.x_stride};
  if constexpr (Format::kGroup == 0) return multiply_columns<Format>(columns, end - k, sum);
  for (int64_t at = 0; k < end; at += Format::kGroup, k += Format::kGroup) {
    Vec group[R][P];
    clear(group);
    if (Format::kGroup == 16 || k + Format::kGroup <= end) {
      multiply_columns<Format>(columns, Format::kGroup, group);
    } else {
      multiply_columns<Format>(columns, end - k, group);
    }
    columns.panels += Format::kGroup / Format::kColumns * Format::kBytes;
    columns.x += Format::kGroup;
    for (int p = 0; p < P; ++p) {
      const Vec scale = group_scale<Format>(window.scales(p), at);
      for (int r = 0; r < R; ++r) sum[r][p] = fma(group[r][p], scale, sum[r][p]);
    }
  }
}

template <typename Format, int R, int P>
void direct_tile(const LinearPanels& a, int64_t panel) {
  WindowOf<Format, P> window(a, panel);
  Vec sum[R][P];
  clear(sum);
  for (int64_t k = 0; k < a.k_padded; k += window.columns()) {
    window.open(k);
    multiply_window<Format>(a, window, k, k + window.columns(), sum);
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
  DecodedChunk<Format, P> decoded;
  alignas(64) float sums[kChunkRows * P * kPanelRows];
  for (int i = 0; i < rows * P * kPanelRows; i += 16) store(sums + i, zero());
  for (int64_t k = 0; k < a.k_padded; k += kChunkColumns) {
    const int64_t end = k + kChunkColumns < a.k_padded ? k + kChunkColumns : a.k_padded;
    decoded.decode(a, panel, k, end);
    const Chunk chunk = {decoded.weights,
                         decoded.scales,
                         static_cast<int>(end - k),
                         a.x + row_begin * a.x_stride + k,
                         a.x_stride,
                         sums};
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
  DecodedChunk<Format, 1> decoded;
  const int64_t panel = row / kPanelRows;
  const auto lane = static_cast<int>(row % kPanelRows);
  for (int64_t k = 0; k < a.k_padded; k += kChunkColumns) {
    const int64_t end = k + kChunkColumns < a.k_padded ? k + kChunkColumns : a.k_padded;
    decoded.decode(a, panel, k, end);
    for (int64_t i = k; i < end; ++i) {
      float value = decoded.weights[(i - k) * kPanelRows + lane];
      if constexpr (Format::kGroup > 0) {
        const float scale = decoded.scales[(i - k) / Format::kGroup * kPanelRows + lane];
        value *= a.final_scale != nullptr ? scale * a.final_scale[row] : scale;
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
