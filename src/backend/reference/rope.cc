// Rotary embedding of one head.
#include "backend/reference/rope.h"

namespace nibble::reference {

std::array<int32_t, 3> position_of(const Batch& batch, int row) {
  const auto rows = static_cast<size_t>(batch.rows());
  const auto at = static_cast<size_t>(row);
  return {batch.positions[at], batch.positions[rows + at], batch.positions[2 * rows + at]};
}

void rotate(const RopeTable& table, const std::array<int32_t, 3>& position, float* head) {
  const auto pairs = static_cast<size_t>(table.pairs());
  std::vector<float> cos(pairs);
  std::vector<float> sin(pairs);
  rope_angles(table, position, cos, sin);
  for (size_t i = 0; i < pairs; ++i) {
    const double low = head[i];
    const double high = head[i + pairs];
    head[i] = static_cast<float>(low * cos[i] - high * sin[i]);
    head[i + pairs] = static_cast<float>(high * cos[i] + low * sin[i]);
  }
}

}  // namespace nibble::reference
