// Embedding lookup.
#include "backend/reference/embed.h"

#include <algorithm>

namespace nibble::reference {

std::vector<float> embed(const Linear& embedding, const Batch& batch) {
  const auto hidden = static_cast<size_t>(embedding.cols());
  std::vector<float> h(batch.tokens.size() * hidden);
  for (size_t row = 0; row < batch.tokens.size(); ++row)
    embedding.row(batch.tokens[row], &h[row * hidden]);
  for (const EmbeddingOverride& media : batch.embeddings)
    std::copy_n(media.embedding, hidden, &h[static_cast<size_t>(media.row) * hidden]);
  return h;
}

}  // namespace nibble::reference
