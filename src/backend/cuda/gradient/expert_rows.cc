// A counting sort.
#include "backend/cuda/gradient/expert_rows.h"

#include <algorithm>

namespace nibble::cuda {

ExpertRows sort_by_expert(std::span<const int32_t> chosen, std::span<const float> weights,
                          int32_t top_k, int32_t experts) {
  ExpertRows out;
  out.begin.resize(static_cast<size_t>(experts) + 1);
  for (const int32_t expert : chosen) ++out.begin[static_cast<size_t>(expert) + 1];
  for (size_t e = 0; e < static_cast<size_t>(experts); ++e) out.begin[e + 1] += out.begin[e];
  std::vector<int32_t> next(out.begin.begin(), out.begin.end() - 1);
  out.row.resize(chosen.size());
  out.expert.resize(chosen.size());
  out.weight.resize(chosen.size());
  out.slots.resize(chosen.size());
  for (size_t i = 0; i < chosen.size(); ++i) {
    const int32_t place = next[static_cast<size_t>(chosen[i])]++;
    const auto at = static_cast<size_t>(place);
    out.row[at] = static_cast<int32_t>(i) / top_k;
    out.expert[at] = chosen[i];
    out.weight[at] = weights[i];
    out.slots[i] = place;
  }
  for (auto row = out.slots.begin(); row != out.slots.end(); row += top_k)
    std::sort(row, row + top_k);
  for (int32_t e = 0; e < experts; ++e) {
    const int32_t end = out.begin[static_cast<size_t>(e) + 1];
    for (int32_t a = out.begin[static_cast<size_t>(e)]; a < end; a += kTileTokens)
      out.tiles.push_back({.expert = e, .begin = a, .count = std::min(kTileTokens, end - a)});
  }
  return out;
}

}  // namespace nibble::cuda
