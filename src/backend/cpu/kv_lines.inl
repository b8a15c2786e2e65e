// The lines of keys and values of each format of pages, as attention reads them; pools.h has their
// layout. Keys: load() gives kDims adjacent dimensions of 64 keys, finish() turns sums over all
// dimensions into dot products. Values: row(j) is the line of a token, load() gives 16 columns of
// it. Included by kernels_*.cc before attention_kernel.inl.

namespace nibble::cpu {
namespace {

constexpr int kPageKeys = 64;
constexpr int kKeyVectors = kPageKeys / 16;

// A format without scales: kBytes of an element, and load of 16 adjacent ones.

struct F32Elements {
  static constexpr int kBytes = 4;
  static Vec load16(const std::byte* p) { return load(reinterpret_cast<const float*>(p)); }
};

struct Bf16Elements {
  static constexpr int kBytes = 2;
  static Vec load16(const std::byte* p) { return as_floats(shift_left<16>(widen_halves(p))); }
};

struct E4m3Elements {
  static constexpr int kBytes = 1;
  /// The largest number is 448; the codes that would be 480 are NaN. 480 times 2^128 / 464 is
  /// infinite, and infinity times zero is NaN; 448 times it is finite and adds zero.
  static Vec load16(const std::byte* p) {
    const Vec value =
        e4m3_fields_to_float(mask_words(shift_left<20>(widen_signed(p)), 0x87F00000U));
    return fma(mul(value, broadcast(0x1p127F / 232.0F)), zero(), value);
  }
};

/// 16 numbers in F16. Those of the exponent of infinity and NaN would be 65536 and more, which
/// times 2^112 is infinite, and infinity times zero is NaN; 65504 times it is finite.
inline Vec load_f16(const std::byte* p) {
  const Words fields =
      mask_words(shift_right_signed<3>(shift_left<16>(widen_halves(p))), 0x8FFFE000U);
  const Vec value = mul(as_floats(fields), broadcast(0x1p112F));
  return fma(mul(value, broadcast(0x1p112F)), zero(), value);
}

template <typename Elements>
struct PlainLines {
  struct Keys {
    static constexpr int kDims = 1;
    const std::byte* keys;
    Keys(const std::byte* lines, int) : keys(lines) {}
    void load(int d, Vec (&key)[1][kKeyVectors]) const {
      for (int j = 0; j < kKeyVectors; ++j)
        key[0][j] = Elements::load16(keys + (int64_t{d} * kPageKeys + 16 * j) * Elements::kBytes);
    }
    void finish(Vec (&)[kKeyVectors]) const {}
  };
  struct Row {
    const std::byte* line;
    Vec load(int column, int lanes) const {
      const std::byte* from = line + int64_t{column} * Elements::kBytes;
      if (lanes == 16) return Elements::load16(from);
      std::byte last[16 * Elements::kBytes] = {};  // nothing after the row is touched
      __builtin_memcpy(last, from, lanes * Elements::kBytes);
      return Elements::load16(last);
    }
  };
  struct Values {
    static constexpr bool kInPlace = Elements::kBytes == 4;
    const std::byte* lines;
    int head_dim;
    auto row(int j) const {
      const std::byte* line = lines + int64_t{j} * head_dim * Elements::kBytes;
      if constexpr (kInPlace)
        return reinterpret_cast<const float*>(line);
      else
        return Row{line};
    }
  };
};

/// Adjacent dimensions 2 i and 2 i + 1 of 16 keys, from byte i of each.
inline void look_up_pair(Vec table, const std::byte* bytes, Vec& even, Vec& odd) {
  const Words pairs = widen_bytes(bytes);
  even = look_up(table, mask_words(pairs, 15U));
  odd = look_up(table, shift_right_signed<4>(pairs));
}

alignas(64) constexpr float kE2m1[16] = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                         -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};
alignas(64) constexpr float kSteps[16] = {0.0F, 1.0F, 2.0F,  3.0F,  4.0F,  5.0F,  6.0F,  7.0F,
                                          8.0F, 9.0F, 10.0F, 11.0F, 12.0F, 13.0F, 14.0F, 15.0F};

struct TurboquantLines {
  struct Keys {
    static constexpr int kDims = 2;
    const std::byte* codes;
    const std::byte* factors;  // of a key, F16
    Vec centroids = nibble::cpu::load(kKvCentroids);
    Keys(const std::byte* lines, int head_dim)
        : codes(lines), factors(lines + head_dim / 2 * kPageKeys) {}
    void load(int d, Vec (&key)[2][kKeyVectors]) const {
      for (int j = 0; j < kKeyVectors; ++j)
        look_up_pair(centroids, codes + d / 2 * kPageKeys + 16 * j, key[0][j], key[1][j]);
    }
    void finish(Vec (&s)[kKeyVectors]) const {
      for (int j = 0; j < kKeyVectors; ++j) s[j] = mul(s[j], load_f16(factors + 32 * j));
    }
  };
  struct Row {
    const std::byte* codes;
    Vec step;
    Vec least;
    Vec load(int column, int) const {
      return fma(step, look_up(nibble::cpu::load(kSteps), widen_nibbles(codes + column / 2)),
                 least);
    }
  };
  struct Values {
    static constexpr bool kInPlace = false;
    const std::byte* lines;
    int head_dim;
    Row row(int j) const {
      std::byte scales[32] = {};
      __builtin_memcpy(scales, lines + head_dim / 2 * kPageKeys + 4 * j, 4);
      alignas(64) float wide[16];
      store(wide, load_f16(scales));
      return {lines + head_dim / 2 * j, broadcast(wide[0]), broadcast(wide[1])};
    }
  };
};

struct Nvfp4Lines {
  struct Keys {
    static constexpr int kDims = 2;
    const std::byte* codes;
    const std::byte* scales;
    Vec numbers = nibble::cpu::load(kE2m1);
    Vec scale[kKeyVectors];  // of 16 dimensions
    Keys(const std::byte* lines, int head_dim)
        : codes(lines), scales(lines + head_dim / 2 * kPageKeys) {}
    void load(int d, Vec (&key)[2][kKeyVectors]) {
      if (d % 16 == 0)
        for (int j = 0; j < kKeyVectors; ++j)
          scale[j] = E4m3Elements::load16(scales + d / 16 * kPageKeys + 16 * j);
      for (int j = 0; j < kKeyVectors; ++j) {
        look_up_pair(numbers, codes + d / 2 * kPageKeys + 16 * j, key[0][j], key[1][j]);
        key[0][j] = mul(key[0][j], scale[j]);
        key[1][j] = mul(key[1][j], scale[j]);
      }
    }
    void finish(Vec (&)[kKeyVectors]) const {}
  };
  struct Row {
    const std::byte* codes;
    const std::byte* scales;
    Vec load(int column, int) const {
      uint8_t code;
      __builtin_memcpy(&code, scales + column / 16, 1);
      std::byte same[16];
      __builtin_memset(same, code, sizeof same);
      return mul(look_up(nibble::cpu::load(kE2m1), widen_nibbles(codes + column / 2)),
                 E4m3Elements::load16(same));
    }
  };
  struct Values {
    static constexpr bool kInPlace = false;
    const std::byte* lines;
    int head_dim;
    Row row(int j) const {
      return {lines + head_dim / 2 * j, lines + head_dim / 2 * kPageKeys + head_dim / 16 * j};
    }
  };
};

}  // namespace
}  // namespace nibble::cpu
