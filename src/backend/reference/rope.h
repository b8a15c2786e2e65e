// Rotates the first dimensions of a query or key head.
#pragma once

#include "model/batch.h"
#include "model/config/rope.h"

namespace nibble::reference {

/// (t, h, w) of one row of a batch.
std::array<int32_t, 3> position_of(const Batch& batch, int row);

/// NeoX halves inside the rotated part: y_i = x_i c_i - x_{i+R/2} s_i, y_{i+R/2} = x_{i+R/2} c_i +
/// x_i s_i; the other dimensions pass. `head` points at one head, in place.
void rotate(const RopeTable& table, const std::array<int32_t, 3>& position, float* head);

}  // namespace nibble::reference
