// The formats of weights as units of registers, and columns of them decoded to F32.

namespace nibble::cpu {
namespace {

constexpr int kChunkColumns = 128;  // of the blocked product; = kFp8Block, a multiple of 16

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

template <typename Format, int P>
using WindowOf = PanelWindow<Format::kBytes / Format::kColumns, P>;

/// Some columns of P panels as F32 code values, [columns][P][16], and their scales.
template <typename Format, int P>
struct DecodedChunk {
  alignas(64) float weights[kChunkColumns * P * kPanelRows];
  alignas(64) float scales[kChunkColumns / 16 * P * kPanelRows];  // [groups][P][16]

  void decode(const LinearPanels& a, int64_t panel, int64_t k_begin, int64_t k_end);

 private:
  /// The unit at column `column` of panel p.
  void put(const Format& unit, int64_t column, int p) {
    put_pair<0>(unit, column, p);
    if constexpr (Format::kColumns >= 4) put_pair<1>(unit, column, p);
    if constexpr (Format::kColumns >= 8) {
      put_pair<2>(unit, column, p);
      put_pair<3>(unit, column, p);
    }
  }
  template <int kPair>
  void put_pair(const Format& unit, int64_t column, int p) {
    Vec even;
    Vec odd;
    unit.template decode<kPair>(even, odd);
    float* to = weights + ((column + 2 * kPair) * P + p) * kPanelRows;
    store(to, even);
    store(to + P * kPanelRows, odd);
  }
};

template <typename Format, int P>
void DecodedChunk<Format, P>::decode(const LinearPanels& a, int64_t panel, int64_t k_begin,
                                     int64_t k_end) {
  WindowOf<Format, P> window(a, panel);
  for (int64_t k = k_begin; k < k_end;) {
    const int64_t begin = window.begin_of(k);
    const int64_t end = begin + window.columns() < k_end ? begin + window.columns() : k_end;
    window.open(begin);
    if constexpr (Format::kGroup > 0)
      for (int64_t g = k; g < end; g += Format::kGroup)
        for (int p = 0; p < P; ++p)
          store(scales + ((g - k_begin) / Format::kGroup * P + p) * kPanelRows,
                group_scale<Format>(window.scales(p), g - begin));
    for (; k < end; k += Format::kColumns)
      for (int p = 0; p < P; ++p)
        put(Format::load_unit(window.values(p) + (k - begin) / Format::kColumns * Format::kBytes),
            k - k_begin, p);
  }
}

}  // namespace
}  // namespace nibble::cpu
