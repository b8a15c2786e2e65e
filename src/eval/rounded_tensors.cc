// Codes and scales are never stored: a group is rounded and given back as F32, which holds every
// product of a code and a scale below exactly enough to be the nearest F32 to it.
#include "eval/rounded_tensors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "tensor/float_formats.h"
#include "tensor/fp8.h"

namespace nibble {
namespace {

float largest(std::span<const float> group) {
  float most = 0.0F;
  for (const float value : group) most = std::max(most, std::fabs(value));
  return most;
}

/// Codes -most to most, to nearest, ties to even.
void round_integers(std::span<float> group, float scale, float most) {
  for (float& value : group)
    value = scale == 0.0F ? 0.0F : std::clamp(std::nearbyint(value / scale), -most, most) * scale;
}

void round_int8(std::span<float> group) { round_integers(group, largest(group) / 127.0F, 127.0F); }

void round_int4(std::span<float> group) {
  round_integers(group, round_to_bf16(largest(group) / 7.0F), 7.0F);
}

/// The OCP microscaling specification: the scale is 2 to the power of floor(log2(largest)) - 2,
/// where 2 is the exponent of E2M1's largest number; what is beyond 6 scales becomes 6.
void round_mxfp4(std::span<float> group) {
  const float most = largest(group);
  if (most == 0.0F) return;
  constexpr int kExponentMax = 2;
  const float scale = std::ldexp(1.0F, std::ilogb(most) - kExponentMax);
  for (float& value : group) value = e2m1_to_float(float_to_e2m1(value / scale)) * scale;
}

constexpr int64_t kBlock = 32;
constexpr std::array<SimulatedFormat, 3> kFormats = {{
    {"int8", "one F32 scale a row, the largest over 127; codes -127 to 127", 0, 8, 32, round_int8},
    {"int4", "one BF16 scale for 32 columns, the largest over 7; codes -7 to 7", kBlock, 4, 16,
     round_int4},
    {"mxfp4", "one E8M0 scale for 32 columns, as OCP MX 1.0 chooses it; E2M1 codes", kBlock, 4, 8,
     round_mxfp4},
}};

}  // namespace

std::span<const SimulatedFormat> simulated_formats() { return kFormats; }

RoundedTensors::RoundedTensors(const TensorSource& source, const SimulatedFormat& format,
                               const std::map<std::string, int64_t>& columns)
    : source_(source), format_(format) {
  for (const auto& [name, length] : columns) {
    const TensorEntry* entry = source.find(name);
    CHECK(entry != nullptr && length > 0, "no tensor ", name);
    const int64_t count = entry->shape.count();
    CHECK(count % length == 0, name, ": ", count, " numbers in rows of ", length);
    Rounded tensor{.entry = *entry, .source = entry, .columns = length};
    tensor.entry.dtype = DType::f32;
    tensor.entry.bytes = dtype_bytes(DType::f32, count);
    rounded_.emplace(name, std::move(tensor));
  }
}

const TensorEntry* RoundedTensors::find(std::string_view name) const {
  const auto found = rounded_.find(name);
  return found == rounded_.end() ? source_.find(name) : &found->second.entry;
}

Result<void> RoundedTensors::read_row(const Rounded& tensor, int64_t row,
                                      std::span<float> values) const {
  const DType type = tensor.source->dtype;
  const auto bytes = dtype_bytes(type, tensor.columns);
  std::vector<std::byte> stored(static_cast<size_t>(bytes));
  TRY(source_.read_bytes(*tensor.source, row * bytes, stored));
  decode_plain(stored.data(), type, tensor.columns, values.data());
  const auto group = static_cast<size_t>(format_.group == 0 ? tensor.columns : format_.group);
  for (size_t at = 0; at < values.size(); at += group)
    format_.round(values.subspan(at, std::min(group, values.size() - at)));
  return {};
}

Result<void> RoundedTensors::read_bytes(const TensorEntry& entry, int64_t begin,
                                        std::span<std::byte> out) const {
  const auto found = rounded_.find(entry.name);
  if (found == rounded_.end()) return source_.read_bytes(entry, begin, out);
  const Rounded& tensor = found->second;
  const int64_t row_bytes = dtype_bytes(DType::f32, tensor.columns);
  std::vector<float> values(static_cast<size_t>(tensor.columns));
  while (!out.empty()) {
    TRY(read_row(tensor, begin / row_bytes, values));
    const auto from = static_cast<size_t>(begin % row_bytes);
    const size_t count = std::min(out.size(), static_cast<size_t>(row_bytes) - from);
    std::memcpy(out.data(), std::as_bytes(std::span(values)).data() + from, count);
    out = out.subspan(count);
    begin += static_cast<int64_t>(count);
  }
  return {};
}

}  // namespace nibble
