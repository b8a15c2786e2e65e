// One scan, from the end: at each place the length of the match with the end of the text.
#include "engine/sample/drafter.h"

#include <algorithm>

#include "base/check.h"

namespace nibble {

NgramDrafter::NgramDrafter(const Options& options) : options_(options) {
  CHECK(options.match_min >= 1 && options.match_max >= options.match_min, "matches of ",
        options.match_min, " to ", options.match_max);
  CHECK(options.look_back_max > options.match_max, "look back ", options.look_back_max);
}

void NgramDrafter::propose(const Sequence& sequence, int32_t count_max,
                           std::vector<int32_t>& drafts) {
  drafts.clear();
  const std::vector<int32_t>& prompt = sequence.request.prompt;
  const std::vector<int32_t>& generated = sequence.generated;
  const auto at = [&](size_t i) {
    return i < prompt.size() ? prompt[i] : generated[i - prompt.size()];
  };
  const size_t size = prompt.size() + generated.size();
  if (size < 2) return;
  const size_t begin = size - std::min(size, static_cast<size_t>(options_.look_back_max));
  const int32_t last = at(size - 1);
  const auto match_max = static_cast<size_t>(options_.match_max);
  size_t best = static_cast<size_t>(options_.match_min) - 1;
  size_t best_end = 0;  // what follows it is proposed
  for (size_t end = size - 1; end > begin + best && best < match_max; --end) {
    if (at(end - 1) != last) continue;
    size_t match = 1;
    while (match < match_max && match < end - begin && at(end - 1 - match) == at(size - 1 - match))
      ++match;
    if (match > best) best = match, best_end = end;
  }
  if (best_end == 0) return;
  for (size_t i = best_end; i < size && static_cast<int32_t>(drafts.size()) < count_max; ++i)
    drafts.push_back(at(i));
}

}  // namespace nibble
