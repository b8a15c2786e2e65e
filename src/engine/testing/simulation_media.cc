// A handful of made-up media.
#include "engine/testing/simulation_media.h"

#include <algorithm>
#include <optional>

#include "engine/testing/fake_backend.h"

namespace nibble {
namespace {

constexpr int kMedia = 7;

std::shared_ptr<const MediaPatches> medium(int index) {
  constexpr MediaGrid kGrids[kMedia] = {{1, 2, 2}, {1, 4, 4}, {1, 4, 10}, {1, 8, 8},
                                        {2, 4, 4}, {1, 2, 6}, {1, 4, 6}};
  auto made = std::make_shared<MediaPatches>();
  made->grid = kGrids[index];
  std::mt19937_64 random(static_cast<uint64_t>(index));
  for (int64_t i = 0; i < made->grid.patches() * 3; ++i)
    made->levels.push_back(static_cast<uint8_t>(random() % 255));
  for (auto& channel : made->values)
    for (size_t i = 0; i < channel.size(); ++i) channel[i] = static_cast<float>(i);
  if (index == kMedia - 1) {
    made->values[2][255] = std::numeric_limits<float>::quiet_NaN();
    made->levels.back() = 255;
  }
  return made;
}

}  // namespace

void add_random_media(SequenceRequest& request, std::mt19937_64& random) {
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  const auto size = static_cast<int>(request.prompt.size());
  int begin = 0;
  for (int count = pick(1, 3); count > 0; --count) {
    const bool broken = pick(0, 60) == 0;
    const int index = broken ? kMedia - 1 : pick(0, kMedia - 2);
    auto patches = medium(index);
    const auto rows = static_cast<int>(patches->grid.rows(FakeVision::config().merge));
    if (begin + rows > size) return;
    begin = pick(begin, size - rows);
    request.media.push_back(
        {.span = {.begin = begin, .count = rows, .digest = {static_cast<uint64_t>(index), 9}},
         .patches = std::move(patches)});
    begin += rows;
  }
}

SequenceRequest copy_of(const SequenceRequest& request) {
  SequenceRequest copy;
  copy.id = request.id;
  copy.prompt = request.prompt;
  copy.max_tokens = request.max_tokens;
  copy.stop_ids = request.stop_ids;
  copy.sampling = request.sampling;
  copy.cache = request.cache;
  copy.urgency = request.urgency;
  copy.media = request.media;
  return copy;
}

RequestValues::RequestValues(const SequenceRequest& request) {
  const auto size = static_cast<int32_t>(request.prompt.size());
  std::vector<PlacedGrid> grids;
  for (const MediaRows& media : request.media)
    grids.push_back({.begin = media.span.begin, .grid = media.patches->grid});
  const auto positions = !request.positions.empty()
                             ? request.positions
                             : media_positions(size, grids, FakeVision::config().merge);
  std::vector<std::optional<float>> rows(request.prompt.size());
  for (const MediaRows& media : request.media)
    std::ranges::copy(FakeVision::rows_of(*media.patches), rows.begin() + media.span.begin);
  for (int32_t i = 0; i < size; ++i) {
    const auto at = static_cast<size_t>(i);
    const float* row = rows[at] ? &*rows[at] : nullptr;
    prompt_.push_back(FakeBackend::row_value(request.prompt[at], row, i, positions[at]));
    prompt_entries_.push_back(FakeBackend::entry_value(request.prompt[at], row, i, last_position_));
    last_position_ = positions[at];
    next_position_ = std::max(next_position_, *std::ranges::max_element(positions[at]) + 1);
  }
}

uint64_t RequestValues::generated(int32_t token, size_t index) const {
  const auto at = static_cast<int32_t>(index);
  const int32_t p = next_position_ + at;
  return FakeBackend::row_value(token, nullptr, prompt_size() + at, {p, p, p});
}

uint64_t RequestValues::generated_entry(int32_t token, size_t index) const {
  const auto at = static_cast<int32_t>(index);
  const int32_t p = next_position_ + at - 1;
  return FakeBackend::entry_value(token, nullptr, prompt_size() + at,
                                  at == 0 ? last_position_ : std::array<int32_t, 3>{p, p, p});
}

bool MediaReaders::add(const SequenceRequest& request, const FakeVision& vision) {
  bool right = true;
  for (const MediaRows& media : request.media) {
    std::set<uint64_t>& salts = salts_[media.span.digest];
    const bool others = !salts.empty();
    if (salts.insert(request.cache.salt).second && others) ++apart_;
    right = right && vision.encodings_of(*media.patches) >= std::ssize(salts);
  }
  return right;
}

}  // namespace nibble
