// Value by value, without early exit.
#include "model/weights/sound_weights.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tensor/nvfp4.h"

namespace nibble {
namespace {

template <typename T, typename Sound>
bool all_sound(const TensorView& tensor, const Sound& sound) {
  const auto bytes = static_cast<size_t>(tensor.data == nullptr ? 0 : tensor.bytes());
  using Flag = std::conditional_t<sizeof(T) == 1, uint8_t,
                                  std::conditional_t<sizeof(T) == 2, uint16_t, uint32_t>>;
  Flag bad = 0;  // as wide as a value and no early exit: the loop vectorizes
  for (size_t at = 0; at < bytes; at += sizeof(T)) {
    T value;
    std::memcpy(&value, tensor.data + at, sizeof value);  // files align nothing
    bad |= sound(value) ? Flag{0} : Flag{1};
  }
  return bad == 0;
}

bool finite_values(const TensorView& tensor) {
  switch (tensor.dtype) {
    case DType::bf16:
      return all_sound<uint16_t>(tensor, [](uint16_t x) { return (x & 0x7F80U) != 0x7F80U; });
    case DType::f16:
      return all_sound<uint16_t>(tensor, [](uint16_t x) { return (x & 0x7C00U) != 0x7C00U; });
    case DType::f32:
      return all_sound<float>(tensor, [](float x) { return std::fabs(x) <= 3.4028235e38F; });
    case DType::f64:
      return all_sound<double>(tensor, [](double x) { return std::fabs(x) <= 3.4e38; });
    case DType::f8_e4m3:
      return all_sound<uint8_t>(tensor, [](uint8_t x) { return (x & 0x7FU) != 0x7FU; });
    default:
      return true;  // every E2M1 code is a number
  }
}

/// Kernels read block scales of NVFP4 as unsigned.
bool sound_scales(const LinearView& weight) {
  if (weight.weights != WeightFormat::nvfp4) return finite_values(weight.scales);
  return all_sound<uint8_t>(weight.scales, [](uint8_t x) { return nvfp4_scale_is_sound(x); });
}

}  // namespace

Result<void> check_sound(const LinearView& weight) {
  if (finite_values(weight.values) && sound_scales(weight)) return {};
  return make_error(ErrorCode::corrupt, {.what = weight.module,
                                         .expected = "finite weights and positive scales",
                                         .found = "NaN, infinity or a negative scale",
                                         .advice = "run nibble verify on the checkpoint"});
}

Result<void> check_sound(const LinearWeight& weight) {
  return check_sound({.module = weight.module,
                      .weights = weight.scheme.weights,
                      .values = weight.values.view(),
                      .scales = weight.scales.view()});
}

}  // namespace nibble
