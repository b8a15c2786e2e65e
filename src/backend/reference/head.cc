// Logits.
#include "backend/reference/head.h"

namespace nibble::reference {

HeadRows head(const RmsNorm& norm, const Linear& output, const Batch& batch,
              const std::vector<float>& h) {
  const size_t hidden = norm.weight.size();
  HeadRows rows;
  rows.hidden.resize(batch.logit_rows.size() * hidden);
  for (size_t i = 0; i < batch.logit_rows.size(); ++i)
    norm.apply(&h[static_cast<size_t>(batch.logit_rows[i]) * hidden], &rows.hidden[i * hidden]);
  rows.logits = output.apply(rows.hidden);
  return rows;
}

}  // namespace nibble::reference
