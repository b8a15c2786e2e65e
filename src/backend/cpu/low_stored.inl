// NVFP4 weights that lie as files have them, times one or two rows and decoded for many. Products
// are summed along the rows of the file; then the sums of groups, fewer than the codes, are brought
// into lanes of rows. Floats are added in the order of low_direct.inl, so the bits are the same. It
// needs stored_dots(), which not all instruction sets have.

namespace nibble::cpu {
namespace {

/// The scale of group kByte of four, whose E4M3 codes are the bytes of a word.
template <int kByte>
inline Vec scale_in_word(Words words) {
  const Words moved = [&] {
    if constexpr (kByte == 3)
      return shift_right_signed<4>(words);
    else
      return shift_left<20 - 8 * kByte>(words);
  }();
  return e4m3_fields_to_float(mask_words(moved, 0x0FF00000U));
}
/// Adds four groups to the sums, in their order.
template <int R>
inline void add_groups(const LinearPanels& a, int64_t group, Words scales, const Ints (&dot)[R][8],
                       int first, Vec (&sum)[R]) {
  const Vec scale[4] = {scale_in_word<0>(scales), scale_in_word<1>(scales),
                        scale_in_word<2>(scales), scale_in_word<3>(scales)};
#pragma GCC unroll 2
  for (int r = 0; r < R; ++r) {
    const float* x = LowRow(a, r).scales + group;
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
      sum[r] = fma(mul(to_floats(dot[r][first + i]), broadcast(x[i])), scale[i], sum[r]);
  }
}

template <int R>
void low_stored_tile(const LinearPanels& a, int64_t panel) {
  const int64_t stride = a.panel_bytes / kPanelRows;
  const int64_t scale_stride = a.scale_bytes / kPanelRows;
  const std::byte* rows = a.panels + panel * a.panel_bytes;
  const std::byte* scales = a.scales + panel * a.scale_bytes;
  Vec sum[R];
  for (int r = 0; r < R; ++r) sum[r] = zero();
  for (int64_t k = 0; k < a.k_padded; k += 256) {
    Words words[4];
    load_four_words(scales + k / 16, scale_stride, words);
    for (int at = 0; at < 256; at += 64) fetch_ahead(scales + a.scale_bytes + k + at);
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const int64_t begin = k + 128 * half;
#pragma GCC unroll 16
      for (int at = 0; at < 1024; at += 64) fetch_ahead(rows + a.panel_bytes + begin * 8 + at);
      StoredInputs x[R];
      for (int r = 0; r < R; ++r) {
        const LowRow row(a, r);
        x[r] = load_stored_inputs(row.codes + begin, row.offsets + begin / kLowGroup);
      }
      Ints dot[R][8];
      stored_dots(rows + begin / 2, stride, x, dot);
      add_groups(a, begin / kLowGroup, words[2 * half], dot, 0, sum);
      add_groups(a, begin / kLowGroup + 4, words[2 * half + 1], dot, 4, sum);
    }
  }
  for (int r = 0; r < R; ++r) finish(a, r, panel, sum[r]);
}

/// The scales of 16 groups of a panel, to every P-th vector of a chunk.
template <int P>
inline void decode_stored_scales(const std::byte* scales, int64_t stride,
                                 float (*to)[P][kPanelRows], int p) {
  Words words[4];
  load_four_words(scales, stride, words);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    store(to[4 * i][p], scale_in_word<0>(words[i]));
    store(to[4 * i + 1][p], scale_in_word<1>(words[i]));
    store(to[4 * i + 2][p], scale_in_word<2>(words[i]));
    store(to[4 * i + 3][p], scale_in_word<3>(words[i]));
  }
}

template <int P>
void decode_stored_chunk(const LinearPanels& a, int64_t panel, int64_t k, LowNvfp4Chunk<P>& chunk) {
  for (int p = 0; p < P; ++p) {
    const std::byte* rows = a.panels + (panel + p) * a.panel_bytes + k / 2;
    decode_stored_scales<P>(a.scales + (panel + p) * a.scale_bytes + k / 16,
                            a.scale_bytes / kPanelRows, chunk.scales, p);
    for (int line = 0; line < 2; ++line)
      decode_stored_line(rows + line * 64, a.panel_bytes / kPanelRows, &chunk.weights[line * 32][p],
                         P);
  }
}

}  // namespace
}  // namespace nibble::cpu
