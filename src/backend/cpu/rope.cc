// Angles of a batch and the rotation of one head.
#include "backend/cpu/rope.h"

namespace nibble::cpu {

void fill_angles(const RopeTable& table, const Batch& batch, Matrix& cos, Matrix& sin) {
  const auto rows = static_cast<size_t>(batch.rows());
  const auto pairs = static_cast<size_t>(table.pairs());
  for (size_t row = 0; row < rows; ++row) {
    const auto* p = &batch.positions[row];
    rope_angles(table, {p[0], p[rows], p[2 * rows]}, {cos.row(static_cast<int64_t>(row)), pairs},
                {sin.row(static_cast<int64_t>(row)), pairs});
  }
}

void rotate(float* x, const float* cos, const float* sin, int pairs) {
  for (int i = 0; i < pairs; ++i) {
    const float low = x[i];
    const float high = x[i + pairs];
    x[i] = low * cos[i] - high * sin[i];
    x[i + pairs] = high * cos[i] + low * sin[i];
  }
}

}  // namespace nibble::cpu
