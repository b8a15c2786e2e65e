// One pass over the ids.
#include "server/images/placeholders.h"

#include <algorithm>

namespace nibble {

Result<std::vector<ImageTokens>> expand_placeholders(std::vector<int32_t>& prompt,
                                                     int32_t image_token,
                                                     std::span<const int64_t> rows) {
  const auto places = static_cast<size_t>(std::ranges::count(prompt, image_token));
  if (places != rows.size())
    return make_error(ErrorCode::invalid_argument,
                      {.what = "the prompt that the chat template makes",
                       .expected = concat("a place for each of ", rows.size(), " images"),
                       .found = concat(places)});
  if (rows.empty()) return std::vector<ImageTokens>();
  int64_t total = static_cast<int64_t>(prompt.size() - places);
  for (const int64_t count : rows) total += count;
  if (total > INT32_MAX)
    return make_error(ErrorCode::invalid_argument,
                      {.what = "the prompt with its images",
                       .expected = concat("at most ", INT32_MAX, " tokens"),
                       .found = concat(total)});
  std::vector<int32_t> expanded;
  expanded.reserve(static_cast<size_t>(total));
  std::vector<ImageTokens> images;
  for (const int32_t id : prompt) {
    if (id != image_token) {
      expanded.push_back(id);
      continue;
    }
    const int64_t count = rows[images.size()];
    images.push_back({static_cast<int32_t>(expanded.size()), static_cast<int32_t>(count)});
    expanded.insert(expanded.end(), static_cast<size_t>(count), image_token);
  }
  prompt = std::move(expanded);
  return images;
}

int32_t expanded_length(int32_t tokens, std::span<const ImageTokens> images) {
  int32_t length = tokens;
  for (const ImageTokens& image : images) {
    if (length <= image.begin) break;  // the image is not among them
    length += image.count - 1;
  }
  return length;
}

std::vector<int32_t> without_expansion(std::span<const int32_t> prompt,
                                       std::span<const ImageTokens> images) {
  std::vector<int32_t> ids;
  size_t at = 0;
  for (const ImageTokens& image : images) {
    const auto once = static_cast<size_t>(image.begin) + 1;
    ids.insert(ids.end(), prompt.begin() + static_cast<std::ptrdiff_t>(at),
               prompt.begin() + static_cast<std::ptrdiff_t>(once));
    at = static_cast<size_t>(image.begin + image.count);
  }
  ids.insert(ids.end(), prompt.begin() + static_cast<std::ptrdiff_t>(at), prompt.end());
  return ids;
}

}  // namespace nibble
