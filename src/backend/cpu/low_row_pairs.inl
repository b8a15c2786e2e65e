// Many rows times NVFP4 weights by SMMLA, which multiplies two rows of inputs with two weight rows,
// eight columns at once. Sums stay two by two from group to group, and become rows when a chunk is
// done. Each has the order of low_blocked.inl, so the same bits. Included after kernel_table.inl.
//
// Two products, a conversion, a multiplication and an FMA make the sums of a group of 16 columns
// for two rows and two weight rows; dot product takes four products and the same three.

namespace nibble::cpu {
namespace {

static_assert(kWeightOffset == 0, "sums of groups begin at zero");
constexpr int kWeightPairs = kPanelRows / 2;

template <int P>
struct alignas(64) LowPairsChunk {
  static_assert(P == 1);
  static constexpr int kRowsPerTile = 4;
  int8x16_t weights[kLowChunkColumns / 8][kWeightPairs];           // eight columns of two rows
  float32x4_t scales[kLowChunkColumns / kLowGroup][kWeightPairs];  // of two rows, twice
  float sums[kLowChunkRows][P][kPanelRows];
};

/// Eight columns of 16 weight rows, four to a word, as pairs of rows.
inline void store_weight_pairs(const Bytes& first, const Bytes& second, int8x16_t* out) {
  const auto two_pairs = [&](int8x16_t left, int8x16_t right) {
    const int32x4_t words = vreinterpretq_s32_s8(left);
    const int32x4_t next_words = vreinterpretq_s32_s8(right);
    *out++ = vreinterpretq_s8_s32(vzip1q_s32(words, next_words));
    *out++ = vreinterpretq_s8_s32(vzip2q_s32(words, next_words));
  };
  two_pairs(first.a, second.a);
  two_pairs(first.b, second.b);
  two_pairs(first.c, second.c);
  two_pairs(first.d, second.d);
}

inline float32x4_t first_halves(float32x4_t a, float32x4_t b) {
  return vreinterpretq_f32_f64(vzip1q_f64(vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b)));
}
inline float32x4_t second_halves(float32x4_t a, float32x4_t b) {
  return vreinterpretq_f32_f64(vzip2q_f64(vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b)));
}

template <int P>
void decode_low_chunk(const LinearPanels& a, int64_t panel, int64_t k_begin, int64_t k_end,
                      LowPairsChunk<P>& chunk) {
  PanelWindow<8, P> window(a, panel);
  window.open(k_begin);
  for (int64_t at = 0; at < k_end - k_begin; at += kLowGroup) {
    const auto unit = LowNvfp4::load_unit(window.values(0) + at * 8);
    store_weight_pairs(unit.weights[0], unit.weights[1], chunk.weights[at / 8]);
    store_weight_pairs(unit.weights[2], unit.weights[3], chunk.weights[at / 8 + 1]);
    const Vec scale = group_scale<Nvfp4Format>(window.scales(0), at);
    float32x4_t* out = chunk.scales[at / kLowGroup];
    const auto two_pairs = [&](float32x4_t four) {
      *out++ = first_halves(four, four);
      *out++ = second_halves(four, four);
    };
    two_pairs(scale.a);
    two_pairs(scale.b);
    two_pairs(scale.c);
    two_pairs(scale.d);
  }
}

/// One group of two rows of inputs, with their scales.
struct InputPair {
  int8x16_t low, high;  // eight columns of both rows
  float32x4_t scale;
  static InputPair load(const LowRow& first, const LowRow& second, int64_t k) {
    const auto codes = [&](const LowRow& row) {
      return vreinterpretq_s64_u8(load_16_bytes(row.codes + k));
    };
    return {.low = vreinterpretq_s8_s64(vzip1q_s64(codes(first), codes(second))),
            .high = vreinterpretq_s8_s64(vzip2q_s64(codes(first), codes(second))),
            .scale = vcombine_f32(vld1_dup_f32(first.scales + k / kLowGroup),
                                  vld1_dup_f32(second.scales + k / kLowGroup))};
  }
  /// sum + the products with two weight rows.
  float32x4_t multiply(const int8x16_t& weights, const int8x16_t& next_weights,
                       float32x4_t weight_scale, float32x4_t sum) const {
    const int32x4_t dot = vmmlaq_s32(vmmlaq_s32(vdupq_n_s32(0), low, weights), high, next_weights);
    return vfmaq_f32(sum, vmulq_f32(vcvtq_f32_s32(dot), scale), weight_scale);
  }
};

/// Sums of two rows of inputs and 16 weight rows, two by two.
struct PairSums {
  float32x4_t s0, s1, s2, s3, s4, s5, s6, s7;  // members have names as those of Vec
  static PairSums of_rows(Vec x, Vec y) {
    return {first_halves(x.a, y.a),  second_halves(x.a, y.a), first_halves(x.b, y.b),
            second_halves(x.b, y.b), first_halves(x.c, y.c),  second_halves(x.c, y.c),
            first_halves(x.d, y.d),  second_halves(x.d, y.d)};
  }
  Vec first_row() const {
    return {first_halves(s0, s1), first_halves(s2, s3), first_halves(s4, s5), first_halves(s6, s7)};
  }
  Vec second_row() const {
    return {second_halves(s0, s1), second_halves(s2, s3), second_halves(s4, s5),
            second_halves(s6, s7)};
  }
};

/// Adds the products of pairs of rows with one group of a panel.
template <int kPairs>
inline void add_products(PairSums (&sums)[kPairs], const InputPair (&x)[kPairs],
                         const int8x16_t* weights, const float32x4_t* scales) {
  const auto weight_pair = [&](float32x4_t PairSums::*sum, int i) {
#pragma GCC unroll 4
    for (int r = 0; r < kPairs; ++r)
      sums[r].*sum = x[r].multiply(weights[i], weights[kWeightPairs + i], scales[i], sums[r].*sum);
  };
  weight_pair(&PairSums::s0, 0);
  weight_pair(&PairSums::s1, 1);
  weight_pair(&PairSums::s2, 2);
  weight_pair(&PairSums::s3, 3);
  weight_pair(&PairSums::s4, 4);
  weight_pair(&PairSums::s5, 5);
  weight_pair(&PairSums::s6, 6);
  weight_pair(&PairSums::s7, 7);
}

template <int R, int P>
void low_chunk_tile(const LinearPanels& a, int64_t row, int64_t k_begin, int64_t k_end,
                    LowPairsChunk<P>& chunk, NextPanels& next, int at) {
  constexpr int kPairs = (R + 1) / 2;
  constexpr int kOther = R > 1 ? 1 : 0;  // a single row is both of its pair
  PairSums sums[kPairs];
  for (int r = 0; r < kPairs; ++r)
    sums[r] = PairSums::of_rows(load(chunk.sums[at + 2 * r][0]),
                                load(chunk.sums[at + 2 * r + kOther][0]));
  const auto row_of = [&](int r) { return LowRow(a, row + r); };
  for (int64_t k = k_begin; k < k_end; k += kLowGroup) {
    next.fetch();
    InputPair x[kPairs];
    for (int r = 0; r < kPairs; ++r)
      x[r] = InputPair::load(row_of(2 * r), row_of(2 * r + kOther), k);
    const int64_t column = k - k_begin;
    add_products(sums, x, chunk.weights[column / 8], chunk.scales[column / kLowGroup]);
  }
  for (int r = 0; r < kPairs; ++r) {
    store(chunk.sums[at + 2 * r][0], sums[r].first_row());
    if (R > 1) store(chunk.sums[at + 2 * r + 1][0], sums[r].second_row());
  }
}

void linear_low_by_pairs(const LinearPanels& args) {
  if (args.format == PanelFormat::nvfp4) return low_of<16, LowPairsChunk>(args);
  linear_low(args);
}

}  // namespace
}  // namespace nibble::cpu
