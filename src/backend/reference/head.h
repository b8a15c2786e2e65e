// Final norm and output matrix, for the rows that need logits.
#pragma once

#include <vector>

#include "backend/reference/linear.h"
#include "backend/reference/norm.h"
#include "model/batch.h"

namespace nibble::reference {

struct HeadRows {
  std::vector<float> hidden;  // [R, hidden], after the final norm
  std::vector<float> logits;  // [R, vocab_rows]
};

HeadRows head(const RmsNorm& norm, const Linear& output, const Batch& batch,
              const std::vector<float>& h);

}  // namespace nibble::reference
