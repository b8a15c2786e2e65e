// Many rows times weights with few bits: columns of some panels are decoded to a buffer that stays
// in L1, and tiles of rows run over it. Sums have the order of low_direct.inl, so the same bits.

namespace nibble::cpu {
namespace {

constexpr int kLowChunkColumns = 256;  // a multiple of 128
constexpr int kLowPanelsAtOnce = 8;    // that many rows meet before the next ones
constexpr int kLowChunkRows = 96;      // rows whose sums wait in L1 between chunks

/// Decoded weights of some columns of P panels, and the sums that they add to.
template <int P>
struct alignas(64) LowNvfp4Chunk {
  static constexpr int kRowsPerTile = kLowRowsPerTile;
  Bytes weights[kLowChunkColumns / 4][P];
  float scales[kLowChunkColumns / 16][P][kPanelRows];
  float sums[kLowChunkRows][P][kPanelRows];
};
template <int P>
struct alignas(64) LowFp8Chunk {
  static constexpr int kRowsPerTile = kLowFp8RowsPerTile;
  Pairs weights[kLowChunkColumns / 2][P];
  float scales[kLowChunkColumns / 128][P][kPanelRows];
  float sums[kLowChunkRows][P][kPanelRows];
};

/// It decodes kLowChunkColumns of stored rows without a window between: low_stored.inl.
template <int P>
void decode_stored_chunk(const LinearPanels& a, int64_t panel, int64_t k, LowNvfp4Chunk<P>& chunk);

template <int P>
void decode_low_chunk(const LinearPanels& a, int64_t panel, int64_t k_begin, int64_t k_end,
                      LowNvfp4Chunk<P>& chunk) {
  static_assert(kLowChunkColumns == PanelWindow<8, P>::kStoredColumns);
  if constexpr (kStoredDotRows > 0) {
    if (a.stored) return decode_stored_chunk<P>(a, panel, k_begin, chunk);
  }
  PanelWindow<8, P> window(a, panel);
  window.open(k_begin);
  for (int p = 0; p < P; ++p)
    for (int64_t at = 0; at < k_end - k_begin; at += 16) {
      // Each unit goes straight into the chunk, since GCC copies a LowNvfp4 that it fills first.
      const std::byte* codes = window.values(p) + at * 8;
      auto* weights = &chunk.weights[at / 4];
      decode_integers(codes, weights[0][p], weights[1][p]);
      decode_integers(codes + 64, weights[2][p], weights[3][p]);
      store(chunk.scales[at / 16][p], group_scale<Nvfp4Format>(window.scales(p), at));
    }
}

template <int R, int P>
void low_chunk_tile(const LinearPanels& a, int64_t row, int64_t k_begin, int64_t k_end,
                    LowNvfp4Chunk<P>& chunk, NextPanels& next, int at) {
  Vec sum[R][P];
  for (int r = 0; r < R; ++r)
    for (int p = 0; p < P; ++p) sum[r][p] = load(chunk.sums[at + r][p]);
  int64_t begin[R];
  low_offsets(a, row, begin);
  const LowRow first(a.low_x, a.k_padded);
  const std::byte* codes = first.codes + k_begin;
  const float* x_scales = first.scales + k_begin / kLowGroup;
  const int32_t* offsets = first.offsets + k_begin / kLowGroup;
  const auto* weights = chunk.weights;
  const auto* scales = chunk.scales;
  for (int64_t left = (k_end - k_begin) / kLowGroup; left > 0; --left) {
    next.fetch();
    Ints dot[R][P];
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r)
      for (int p = 0; p < P; ++p) dot[r][p] = broadcast_int(at_bytes(offsets, begin[r]));
    dot_tile<R, P>(dot, weights, codes, begin);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const Vec x_scale = broadcast(at_bytes(x_scales, begin[r]));
      for (int p = 0; p < P; ++p)
        sum[r][p] = fma(mul(to_floats(dot[r][p]), x_scale), load((*scales)[p]), sum[r][p]);
    }
    codes += kLowGroup;
    ++x_scales;
    ++offsets;
    weights += 4;
    ++scales;
  }
  for (int r = 0; r < R; ++r)
    for (int p = 0; p < P; ++p) store(chunk.sums[at + r][p], sum[r][p]);
}

template <int P>
void decode_low_chunk(const LinearPanels& a, int64_t panel, int64_t k_begin, int64_t k_end,
                      LowFp8Chunk<P>& chunk) {
  PanelWindow<16, P> window(a, panel);
  for (int64_t begin = k_begin; begin < k_end; begin += 128) {
    const int64_t end = begin + 128 < k_end ? begin + 128 : k_end;
    window.open(begin);
    for (int p = 0; p < P; ++p) {
      for (int64_t k = begin; k < end; k += 4) {
        const int64_t at = (k - k_begin) / 2;
        decode_fp8(window.values(p) + (k - begin) * 16, chunk.weights[at][p],
                   chunk.weights[at + 1][p]);
      }
      if (a.format == PanelFormat::fp8_block)
        store(chunk.scales[(begin - k_begin) / 128][p],
              group_scale<Fp8Unit<128>>(window.scales(p), 0));
    }
  }
}

template <int R, int P>
void low_chunk_tile(const LinearPanels& a, int64_t row, int64_t k_begin, int64_t k_end,
                    LowFp8Chunk<P>& chunk, NextPanels& next, int at) {
  const bool block = a.format == PanelFormat::fp8_block;
  const int64_t step = block ? 128 : kLowChunkColumns;
  int64_t rows[R];
  low_offsets(a, row, rows);
  for (int64_t begin = k_begin; begin < k_end; begin += step) {
    const int64_t end = begin + step < k_end ? begin + step : k_end;
    Vec sum[R][P];
    for (int r = 0; r < R; ++r)
      for (int p = 0; p < P; ++p) sum[r][p] = block ? zero() : load(chunk.sums[at + r][p]);
    for (int64_t k = begin; k < end; k += 2) {
      if (k % 16 == 0) next.fetch();
      const Pairs* weights = chunk.weights[(k - k_begin) / 2];
      for (int r = 0; r < R; ++r) {
        const uint32_t pair = pair_at(a.low_x + rows[r], k);
        for (int p = 0; p < P; ++p) sum[r][p] = dot_pairs(sum[r][p], weights[p], pair);
      }
    }
    for (int r = 0; r < R; ++r)
      for (int p = 0; p < P; ++p) {
        float* to = chunk.sums[at + r][p];
        const Vec scale = load(chunk.scales[(begin - k_begin) / 128][p]);
        store(to, block ? fma(sum[r][p], scale, load(to)) : sum[r][p]);
      }
  }
}

template <int R, int P, typename ChunkOf>
void low_chunk_rows(const LinearPanels& a, int64_t row_begin, int rows, int64_t k_begin,
                    int64_t k_end, ChunkOf& chunk, NextPanels& next, int at = 0) {
  for (; at + R <= rows; at += R)
    low_chunk_tile<R, P>(a, row_begin + at, k_begin, k_end, chunk, next, at);
  if constexpr (R > 1) {
    constexpr int kFewer = R > 8 ? 8 : R > 4 ? 4 : R / 2;
    if (at < rows) low_chunk_rows<kFewer, P>(a, row_begin, rows, k_begin, k_end, chunk, next, at);
  }
}

/// P panels times up to kLowChunkRows rows.
template <typename ChunkOf, int P>
void low_blocked_panels(const LinearPanels& a, int64_t panel, int64_t row_begin, int rows) {
  ChunkOf chunk;
  for (int r = 0; r < rows; ++r)
    for (int p = 0; p < P; ++p) {
      store(chunk.sums[r][p], zero());
      fetch_to_write(a.y + (row_begin + r) * a.y_stride + (panel + p) * kPanelRows);
    }
  const int tiles = (rows + ChunkOf::kRowsPerTile - 1) / ChunkOf::kRowsPerTile;
  NextPanels next(a, panel + P, P, tiles * a.k_padded / kLowGroup);
  for (int64_t k = 0; k < a.k_padded; k += kLowChunkColumns) {
    const int64_t end = k + kLowChunkColumns < a.k_padded ? k + kLowChunkColumns : a.k_padded;
    decode_low_chunk<P>(a, panel, k, end, chunk);
    low_chunk_rows<ChunkOf::kRowsPerTile, P>(a, row_begin, rows, k, end, chunk, next);
  }
  for (int r = 0; r < rows; ++r)
    for (int p = 0; p < P; ++p) finish(a, row_begin + r, panel + p, load(chunk.sums[r][p]));
}

/// Rows that stay in the second cache while the panels of a unit pass by.
inline int64_t low_rows_at_once(const LinearPanels& a) {
  constexpr int64_t kBytes = 400 << 10;
  const int64_t rows = kBytes / a.low_stride / 24 * 24;
  return rows > kLowChunkRows ? kLowChunkRows : rows > 24 ? rows : 24;
}

/// Some panels at a time, which stay in the second cache too while all rows pass by.
template <template <int> typename ChunkOf>
void low_blocked(const LinearPanels& a) {
  constexpr int P = kLowPanelsPerTile;
  const int64_t most = low_rows_at_once(a);
  for (int64_t begin = a.panel_begin; begin < a.panel_end; begin += kLowPanelsAtOnce) {
    const int64_t left = a.panel_end - begin;
    const int64_t end = begin + (left < kLowPanelsAtOnce ? left : kLowPanelsAtOnce);
    for (int64_t row = 0; row < a.x_rows; row += most) {
      const int rows = static_cast<int>(a.x_rows - row < most ? a.x_rows - row : most);
      int64_t panel = begin;
      for (; panel + P <= end; panel += P) low_blocked_panels<ChunkOf<P>, P>(a, panel, row, rows);
      for (; panel < end; ++panel) low_blocked_panels<ChunkOf<1>, 1>(a, panel, row, rows);
    }
  }
}

/// True if there are so few rows, at most R, that weights are decoded in registers.
template <int kScaleGroup, int R>
bool low_few_rows(const LinearPanels& a) {
  if (a.x_rows == R) {
    low_direct<kScaleGroup, R, R == 1 ? kLowPanelsDirect : kLowPanelsFewRows>(a, a.panel_begin,
                                                                              a.panel_end);
    return true;
  }
  if constexpr (R > 1) return low_few_rows<kScaleGroup, R - 1>(a);
  return false;
}

template <int kScaleGroup, template <int> typename ChunkOf>
void low_of(const LinearPanels& a) {
  constexpr int kDirectRows = kScaleGroup == 16 ? kRowsDirectMax : kLowFp8DirectRows;
  if (!low_few_rows<kScaleGroup, kDirectRows>(a)) low_blocked<ChunkOf>(a);
}

void linear_low(const LinearPanels& args) {
  switch (args.format) {
    case PanelFormat::nvfp4:
      return low_of<16, LowNvfp4Chunk>(args);
    case PanelFormat::fp8:
      return low_of<0, LowFp8Chunk>(args);
    case PanelFormat::fp8_block:
      return low_of<128, LowFp8Chunk>(args);
    case PanelFormat::f32:
    case PanelFormat::bf16:
      return;  // has_low() says so
  }
}

}  // namespace
}  // namespace nibble::cpu
