// Token ids to rows of the embedding matrix.
#pragma once

#include <vector>

#include "backend/reference/linear.h"
#include "backend/reference/vision.h"
#include "model/batch.h"

namespace nibble::reference {

/// [T, hidden]; no scale. Rows that bring their own embedding, or have one of `vision`, are not
/// looked up.
std::vector<float> embed(const Linear& embedding, const Vision* vision, const Batch& batch,
                         int hidden);

}  // namespace nibble::reference
