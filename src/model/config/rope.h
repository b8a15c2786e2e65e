// RopeTable: inverse frequencies and their position axes, shared by every backend. Turning a vector
// with it is the backend's business.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/config/config.h"

namespace nibble {

/// One entry per rotated pair (i, i + R/2) of the first R = rotary_dims dimensions of a head.
struct RopeTable {
  std::vector<double> inverse_frequencies;  // [R/2], radians per position; YaRN applied
  std::vector<uint8_t> axes;                // [R/2], 0 = t, 1 = h, 2 = w
  double scale = 1.0;                       // multiplies cos and sin
  int pairs() const { return static_cast<int>(axes.size()); }
};

/// theta^(-2i/R), extended by YaRN where configured (arXiv 2309.00071; details as transformers'
/// modeling_rope_utils). Interleaved axes: H for i = 1, 4, .. < 3 h, W for i = 2, 5, .. < 3 w, else
/// T, with mrope_section = [t, h, w].
RopeTable make_rope_table(const RopeConfig& config);

/// Every number of the table, exactly: two tables with the same text turn vectors alike.
std::string rope_text(const RopeTable& table);

/// cos and sin [R/2] of one token at position (t, h, w), computed in double, rounded once.
void rope_angles(const RopeTable& table, const std::array<int32_t, 3>& position,
                 std::span<float> cos, std::span<float> sin);

}  // namespace nibble
