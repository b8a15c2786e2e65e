// Which experts a row goes to, and the order of rows by expert.
#include "backend/cpu/context.h"

namespace nibble::cpu {

void Routing::choose(const KernelTable& kernels, const MoeConfig& moe, const RouterRow& router,
                     int64_t row) {
  const float* logits = router.logits;
  kernels.softmax(logits, router.probabilities, moe.experts);
  int32_t* chosen = &experts[static_cast<size_t>(row * moe.top_k)];
  float* weight = &weights[static_cast<size_t>(row * moe.top_k)];
  int count = 0;
  for (int e = 0; e < moe.experts; ++e) {
    if (count == moe.top_k && !(logits[e] > logits[chosen[count - 1]])) continue;
    int rank = count < moe.top_k ? count++ : count - 1;
    for (; rank > 0 && logits[e] > logits[chosen[rank - 1]]; --rank)
      chosen[rank] = chosen[rank - 1];
    chosen[rank] = e;
  }
  float total = 0.0F;
  for (int rank = 0; rank < moe.top_k; ++rank) {
    weight[rank] = router.probabilities[chosen[rank]];
    total += weight[rank];
  }
  if (!moe.renormalize) return;
  for (int rank = 0; rank < moe.top_k; ++rank) weight[rank] /= total;
}

void Routing::place(const MoeConfig& moe, int64_t rows) {
  const auto count = static_cast<size_t>(rows * moe.top_k);
  begin.assign(static_cast<size_t>(moe.experts) + 1, 0);
  for (size_t i = 0; i < count; ++i) ++begin[static_cast<size_t>(experts[i]) + 1];
  for (size_t e = 0; e < static_cast<size_t>(moe.experts); ++e) begin[e + 1] += begin[e];
  next.assign(begin.begin(), begin.end());
  for (size_t i = 0; i < count; ++i) {
    const int32_t place = next[static_cast<size_t>(experts[i])]++;
    places[i] = place;
    sources[static_cast<size_t>(place)] = static_cast<int32_t>(i) / moe.top_k;
  }
}

}  // namespace nibble::cpu
