// One scan, from the end: at each place the length of the match with the end of the text.
#include "engine/drafter.h"

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
  const auto most = static_cast<size_t>(options_.look_back_max);
  const size_t of_prompt = std::min(prompt.size(), most - std::min(most, generated.size()));
  const size_t of_generated = std::min(generated.size(), most);
  text_.assign(prompt.end() - static_cast<ptrdiff_t>(of_prompt), prompt.end());
  text_.insert(text_.end(), generated.end() - static_cast<ptrdiff_t>(of_generated),
               generated.end());
  const size_t size = text_.size();
  const auto match_max = static_cast<size_t>(options_.match_max);
  size_t best = static_cast<size_t>(options_.match_min) - 1;
  size_t best_end = 0;  // what follows it is proposed
  for (size_t end = size - std::min<size_t>(size, 1); end > best && best < match_max; --end) {
    if (text_[end - 1] != text_[size - 1]) continue;
    size_t match = 1;
    while (match < match_max && match < end && text_[end - 1 - match] == text_[size - 1 - match])
      ++match;
    if (match > best) best = match, best_end = end;
  }
  if (best_end == 0) return;
  const size_t count = std::min(static_cast<size_t>(count_max), size - best_end);
  drafts.assign(text_.begin() + static_cast<ptrdiff_t>(best_end),
                text_.begin() + static_cast<ptrdiff_t>(best_end + count));
}

}  // namespace nibble
