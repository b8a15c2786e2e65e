// Rotary positions: the angles of a batch once per pass, and the rotation of one head. The
// frequencies are model/config/rope.h.
#pragma once

#include "backend/cpu/workspace.h"
#include "model/batch.h"
#include "model/config/rope.h"

namespace nibble::cpu {

/// cos and sin [T, pairs] of the batch's positions.
void fill_angles(const RopeTable& table, const Batch& batch, Matrix& cos, Matrix& sin);

/// Rotates the pairs (i, i + pairs) of x in place; the elements after them stay as they are.
void rotate(float* x, const float* cos, const float* sin, int pairs);

}  // namespace nibble::cpu
