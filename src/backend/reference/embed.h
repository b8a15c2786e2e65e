// Token ids to rows of the embedding matrix.
#pragma once

#include <vector>

#include "backend/reference/linear.h"
#include "model/batch.h"

namespace nibble::reference {

/// [T, hidden]; no scale. Rows that bring their own embedding are not looked up.
std::vector<float> embed(const Linear& embedding, const Batch& batch, int hidden);

}  // namespace nibble::reference
