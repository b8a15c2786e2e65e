// Embedding lookup.
#include "backend/reference/embed.h"

namespace nibble::reference {

std::vector<float> embed(const Linear& embedding, const Batch& batch) {
  const auto hidden = static_cast<size_t>(embedding.cols());
  std::vector<float> h(batch.tokens.size() * hidden);
  for (size_t row = 0; row < batch.tokens.size(); ++row)
    embedding.row(batch.tokens[row], &h[row * hidden]);
  return h;
}

}  // namespace nibble::reference
