// Input scales with headroom, as powers of two.
#include <algorithm>
#include <cmath>

#include "quantize/calibrate/calibration.h"
#include "tensor/fp8.h"
#include "tensor/nvfp4.h"

namespace nibble {
namespace {

bool all_zero_or_bad(float amax) { return !(amax > 0.0F) || !std::isfinite(amax); }

float power_of_two_at_least(float value) {
  int exponent = 0;
  const float fraction = std::frexp(value, &exponent);
  return std::ldexp(1.0F, std::clamp(fraction == 0.5F ? exponent - 1 : exponent, -100, 100));
}

}  // namespace

float nvfp4_input_scale(float amax) {
  return all_zero_or_bad(amax)
             ? 1.0F
             : power_of_two_at_least(kNvfp4Headroom / kNvfp4AmaxOverGlobal * amax);
}

float fp8_input_scale(float amax) {
  return all_zero_or_bad(amax) ? 1.0F : power_of_two_at_least(kFp8Headroom / 448.0F * amax);
}

}  // namespace nibble
