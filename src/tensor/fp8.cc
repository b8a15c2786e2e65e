// Decoding by table; the table comes from the bit arithmetic of float_formats.cc.
#include "tensor/fp8.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tensor/float_formats.h"

namespace nibble {

namespace {

/// `count` elements of T at any alignment.
template <typename T, typename ToFloat>
void decode_elements(const std::byte* data, int64_t count, float* out, ToFloat to_float) {
  for (int64_t i = 0; i < count; ++i) {
    T element;
    std::memcpy(&element, data + static_cast<size_t>(i) * sizeof(T), sizeof(T));
    out[i] = to_float(element);
  }
}

}  // namespace

const std::array<float, 256>& e4m3_values() {
  static const std::array<float, 256> kValues = [] {
    std::array<float, 256> values = {};
    for (size_t code = 0; code < 256; ++code) {
      values[code] = e4m3_to_float(static_cast<uint8_t>(code));
    }
    return values;
  }();
  return kValues;
}

void decode_fp8_row(const uint8_t* codes, float scale, int64_t cols, float* out) {
  const auto& values = e4m3_values();
  for (int64_t i = 0; i < cols; ++i) out[i] = values[codes[i]] * scale;
}

void decode_fp8_block_row(const uint8_t* codes, const float* scales, int64_t cols, float* out) {
  for (int64_t begin = 0; begin < cols; begin += kFp8Block) {
    const int64_t width = std::min(kFp8Block, cols - begin);
    decode_fp8_row(codes + begin, scales[begin / kFp8Block], width, out + begin);
  }
}

float fp8_scale(float amax) {
  const float scale = amax / kE4m3Max;
  return std::isfinite(scale) && scale > 0.0F ? scale : 1.0F;
}

void encode_fp8_row(const float* x, float scale, int64_t cols, uint8_t* codes) {
  for (int64_t i = 0; i < cols; ++i) {
    const float value = x[i] / scale;
    codes[i] = std::isnan(value) ? float_to_e4m3(value) : finite_to_e4m3(value);
  }
}

bool is_plain_float(DType type) {
  return type == DType::f32 || type == DType::bf16 || type == DType::f16 || type == DType::f64;
}

void decode_plain(const std::byte* data, DType type, int64_t count, float* out) {
  CHECK(is_plain_float(type), dtype_info(type).name, " is no plain float");
  if (type == DType::f32) {
    decode_elements<float>(data, count, out, [](float x) { return x; });
  } else if (type == DType::bf16) {
    decode_elements<uint16_t>(data, count, out, bf16_to_float);
  } else if (type == DType::f16) {
    decode_elements<uint16_t>(data, count, out, f16_to_float);
  } else {
    decode_elements<double>(data, count, out, [](double x) { return static_cast<float>(x); });
  }
}

}  // namespace nibble
