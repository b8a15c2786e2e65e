// Embedding lookup.
#include "backend/reference/embed.h"

#include <algorithm>

namespace nibble::reference {

std::vector<float> embed(const Linear& embedding, const Vision* vision, const Batch& batch,
                         int hidden) {
  const auto n = static_cast<size_t>(hidden);
  std::vector<float> h(batch.tokens.size() * n);
  auto own = batch.embeddings.begin();
  for (size_t row = 0; row < batch.tokens.size(); ++row) {
    if (own != batch.embeddings.end() && static_cast<size_t>(own->row) == row) {
      const float* from =
          own->embedding != nullptr ? own->embedding : vision->media_row(own->place);
      std::copy_n(from, n, &h[row * n]);
      ++own;
    } else {
      embedding.row(batch.tokens[row], &h[row * n]);
    }
  }
  return h;
}

}  // namespace nibble::reference
