// Inverse frequencies, YaRN, and angles.
#include "model/config/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"

namespace nibble {
namespace {

/// The dimension whose wave makes `rotations` turns over the original context.
double correction_dim(const RopeConfig& config, double rotations) {
  const double turns = config.yarn->original_max_positions / (rotations * 2 * std::numbers::pi);
  return config.rotary_dims * std::log(turns) / (2 * std::log(config.theta));
}

/// Share of interpolation per pair: 0 below the correction range, 1 above it.
std::vector<double> yarn_ramp(const RopeConfig& config) {
  double low = correction_dim(config, config.yarn->beta_fast);
  double high = correction_dim(config, config.yarn->beta_slow);
  if (config.yarn->truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, config.rotary_dims - 1.0);
  if (low == high) high += 0.001;
  std::vector<double> ramp;
  for (int i = 0; i < config.rotary_dims / 2; ++i)
    ramp.push_back(std::clamp((i - low) / (high - low), 0.0, 1.0));
  return ramp;
}

uint8_t axis_of(const std::array<int, 3>& section, int pair) {
  for (uint8_t axis = 1; axis < 3; ++axis)
    if (pair % 3 == axis && pair < 3 * section[axis]) return axis;
  return 0;
}

}  // namespace

RopeTable make_rope_table(const RopeConfig& config) {
  CHECK(config.rotary_dims > 0 && config.rotary_dims % 2 == 0, "rotary dims ", config.rotary_dims);
  RopeTable table;
  for (int i = 0; i < config.rotary_dims / 2; ++i) {
    table.inverse_frequencies.push_back(std::pow(config.theta, -2.0 * i / config.rotary_dims));
    table.axes.push_back(axis_of(config.mrope_section, i));
  }
  if (!config.yarn) return table;
  const std::vector<double> ramp = yarn_ramp(config);
  for (size_t i = 0; i < ramp.size(); ++i)
    table.inverse_frequencies[i] *= (1.0 - ramp[i]) + ramp[i] / config.yarn->factor;
  table.scale = config.yarn->attention_factor;
  return table;
}

std::string rope_text(const RopeTable& table) {
  std::string text = "rope";
  for (size_t i = 0; i < table.axes.size(); ++i) {
    text += concat(" ", static_cast<int>(table.axes[i]), ":");
    append_json_double(text, table.inverse_frequencies[i]);
  }
  append_json_double(text += " x ", table.scale);
  return text;
}

void rope_angles(const RopeTable& table, const std::array<int32_t, 3>& position,
                 std::span<float> cos, std::span<float> sin) {
  const auto pairs = static_cast<size_t>(table.pairs());
  CHECK(cos.size() == pairs && sin.size() == pairs, "room for ", cos.size(), " of ", pairs);
  for (size_t i = 0; i < pairs; ++i) {
    const double angle = position[table.axes[i]] * table.inverse_frequencies[i];
    cos[i] = static_cast<float>(std::cos(angle) * table.scale);
    sin[i] = static_cast<float>(std::sin(angle) * table.scale);
  }
}

}  // namespace nibble
