// The definition of a short list, in double precision.
#include "model/short_list.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace nibble {

OwnedShortList OwnedShortList::of(std::span<const float> row, std::span<const uint32_t> sampleable,
                                  const RowDraw& draw, int32_t count, int32_t group) {
  CHECK(count > 0 && group > 0, "a list of ", count, " tokens, ", group, " logits");
  OwnedShortList list;
  for (const float logit : row)
    list.numbers.sound &= logit < std::numeric_limits<float>::infinity();  // false for NaN
  if (!list.numbers.sound) return list;
  const auto logit_of = [&](int32_t token) { return row[static_cast<size_t>(token)]; };
  const auto rows = static_cast<int32_t>(row.size());
  for (int32_t token = 0; token < rows; ++token)
    if ((sampleable[static_cast<size_t>(token) / 32] >> (token % 32) & 1U) != 0)
      list.tokens.push_back(token);
  if (list.tokens.empty()) return list;
  const std::vector<int32_t> ascending = list.tokens;
  const auto better = [&](int32_t a, int32_t b) {
    return logit_of(a) > logit_of(b) || (logit_of(a) == logit_of(b) && a < b);
  };
  const size_t kept = std::min(list.tokens.size(), static_cast<size_t>(count));
  const auto border = list.tokens.begin() + static_cast<ptrdiff_t>(kept);
  std::nth_element(list.tokens.begin(), border, list.tokens.end(), better);
  std::sort(list.tokens.begin(), border, better);
  const double best = logit_of(list.tokens.front());
  std::vector<double> weights(row.size());
  double total = 0.0;
  for (const int32_t token : ascending) {
    double& weight = weights[static_cast<size_t>(token)];
    weight = std::exp((logit_of(token) - best) / static_cast<double>(draw.temperature));
    total += weight;
  }
  double rest = 0.0;
  for (auto token = border; token != list.tokens.end(); ++token)
    rest += weights[static_cast<size_t>(*token)];
  list.numbers.all = kept == list.tokens.size();
  list.numbers.rest = static_cast<float>(rest);
  list.numbers.total = static_cast<float>(total);
  list.tokens.resize(kept);
  for (const int32_t token : list.tokens) list.logits.push_back(logit_of(token));

  double before = 0.0;
  double cumulative = 0.0;
  int32_t drawn_group = 0;
  for (const int32_t token : ascending) {
    if (token / group != drawn_group) {
      if (cumulative > static_cast<double>(draw.u) * total) break;
      drawn_group = token / group;
      before = cumulative;
    }
    cumulative += weights[static_cast<size_t>(token)];
  }
  const auto begin = drawn_group * group;
  list.numbers.drawn_begin = begin;
  list.numbers.before = static_cast<float>(before);
  const auto from = row.begin() + begin;
  list.drawn.assign(from, from + std::min(group, rows - begin));
  return list;
}

void OwnedShortList::perturb(double share) {
  const double of_total = mass_error(static_cast<double>(numbers.total));
  const auto move = [share](float& mass, double error) {
    mass = static_cast<float>(std::max(static_cast<double>(mass) + share * error, 0.0));
  };
  move(numbers.rest, mass_error(static_cast<double>(numbers.rest)));
  move(numbers.total, -of_total);
  if (numbers.drawn_begin > 0) move(numbers.before, of_total);
}

}  // namespace nibble
