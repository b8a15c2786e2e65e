// Embedding lookup.
#include "backend/reference/embed.h"

#include <algorithm>

namespace nibble::reference {

std::vector<float> embed(const Linear& embedding, const Batch& batch, int hidden) {
  const auto n = static_cast<size_t>(hidden);
  std::vector<float> h(batch.tokens.size() * n);
  auto own = batch.embeddings.begin();
  for (size_t row = 0; row < batch.tokens.size(); ++row) {
    if (own != batch.embeddings.end() && static_cast<size_t>(own->row) == row) {
      std::copy_n(own++->embedding, n, &h[row * n]);
    } else {
      embedding.row(batch.tokens[row], &h[row * n]);
    }
  }
  return h;
}

}  // namespace nibble::reference
