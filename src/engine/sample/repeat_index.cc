// A direct-mapped table: a later place takes that of an earlier one with the same hash, which is
// what is wanted if the tokens are the same. So a place that is found is compared.
#include "engine/sample/repeat_index.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"
#include "base/hash.h"

namespace nibble {

namespace {

constexpr size_t kPlacesLeast = 256;
constexpr size_t kPlacesMost = size_t{1} << 14;  // 64 KiB a sequence

/// A prompt and what was generated after it, as one text.
struct Text {
  std::span<const int32_t> prompt;
  std::span<const int32_t> generated;

  int32_t size() const { return static_cast<int32_t>(prompt.size() + generated.size()); }
  int32_t operator[](int32_t at) const {
    const auto i = static_cast<size_t>(at);
    return i < prompt.size() ? prompt[i] : generated[i - prompt.size()];
  }
  /// A hash of the `count` tokens before `place`.
  uint64_t hash(int32_t place, int32_t count) const {
    uint64_t hash = kFnvBasis;
    for (int32_t i = place - count; i < place; ++i)
      hash = mixed_hash(hash, static_cast<uint32_t>((*this)[i]));
    return hash;
  }
};

}  // namespace

RepeatIndex::RepeatIndex(int32_t match) : match_(match), places_(kPlacesLeast, -1) {
  CHECK(match >= 1, "matches of ", match);
}

void RepeatIndex::enter(uint64_t hash, int32_t place) {
  before_ = std::exchange(places_[slot_of(hash)], place);
}

void RepeatIndex::follow(std::span<const int32_t> prompt, std::span<const int32_t> generated) {
  const Text text{prompt, generated};
  const size_t wanted = std::bit_ceil(4 * static_cast<size_t>(text.size()));
  if (wanted > places_.size() && places_.size() < kPlacesMost) {
    places_.assign(std::min(wanted, kPlacesMost), -1);
    seen_ = 0;  // all are entered anew
  }
  // Places further back would be given to others, and entering them would take long.
  const int32_t nearest = text.size() - static_cast<int32_t>(kPlacesMost) + 1;
  for (int32_t place = std::max({seen_ + 1, match_, nearest}); place <= text.size(); ++place)
    enter(text.hash(place, match_), place);
  seen_ = text.size();
}

std::vector<int32_t> RepeatIndex::next(std::span<const int32_t> prompt,
                                       std::span<const int32_t> generated, int32_t count) const {
  const Text text{prompt, generated};
  CHECK(text.size() == seen_, "a text of ", text.size(), " tokens, ", seen_, " followed");
  std::vector<int32_t> tokens;
  if (seen_ <= match_ || before_ < 0) return tokens;
  for (int32_t i = 1; i <= match_; ++i)
    if (text[before_ - i] != text[seen_ - i]) return tokens;
  for (int32_t i = before_; i < seen_ && std::ssize(tokens) < count; ++i) tokens.push_back(text[i]);
  return tokens;
}

}  // namespace nibble
