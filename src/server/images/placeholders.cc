// One pass over the ids.
#include "server/images/placeholders.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace nibble {

namespace {

constexpr int64_t kMarks = 2;  // vision_start and vision_end

Result<void> check_places(std::span<const int32_t> prompt, int32_t token, size_t wanted,
                          std::string_view what) {
  const auto places = static_cast<size_t>(std::ranges::count(prompt, token));
  if (places == wanted) return {};
  return make_error(ErrorCode::invalid_argument,
                    {.what = "the prompt that the chat template makes",
                     .expected = concat("a place for each of ", wanted, " ", what),
                     .found = concat(places)});
}

int64_t tokens_of(const VideoTokens& video) {
  int64_t tokens = static_cast<int64_t>(video.times.size()) * (kMarks + video.rows);
  for (const auto& time : video.times) tokens += std::ssize(time);
  return tokens;
}

/// An expanded prompt as it grows.
struct Expansion {
  std::vector<int32_t> ids;
  ExpandedMedia media;

  int32_t size() const { return static_cast<int32_t>(ids.size()); }
  MediaTokens put(int32_t token, int64_t rows) {
    const MediaTokens tokens{size(), static_cast<int32_t>(rows)};
    ids.insert(ids.end(), static_cast<size_t>(rows), token);
    return tokens;
  }
  void end_place(int32_t begin, std::vector<int32_t> written) {
    media.places.push_back({begin, size() - begin, std::move(written)});
  }
  void put_video(const VideoTokens& video, const MediaIds& media_ids) {
    auto& steps = media.videos.emplace_back();
    for (const auto& time : video.times) {
      ids.insert(ids.end(), time.begin(), time.end());
      ids.push_back(media_ids.vision_start);
      steps.push_back(put(media_ids.video, video.rows));
      ids.push_back(media_ids.vision_end);
    }
  }
};

}  // namespace

Result<ExpandedMedia> expand_placeholders(std::vector<int32_t>& prompt, const MediaIds& ids,
                                          std::span<const int64_t> image_rows,
                                          std::span<const VideoTokens> videos) {
  TRY(check_places(prompt, ids.image, image_rows.size(), "images"));
  TRY(check_places(prompt, ids.video, videos.size(), "videos"));
  if (image_rows.empty() && videos.empty()) return ExpandedMedia();
  int64_t total = std::ssize(prompt) - std::ssize(image_rows);
  for (const int64_t rows : image_rows) total += rows;
  for (const VideoTokens& video : videos) total += tokens_of(video);
  if (total > INT32_MAX)
    return make_error(ErrorCode::invalid_argument,
                      {.what = "the prompt with its images and videos",
                       .expected = concat("at most ", INT32_MAX, " tokens"),
                       .found = concat(total)});
  Expansion out;
  out.ids.reserve(static_cast<size_t>(total));
  for (size_t i = 0; i < prompt.size(); ++i) {
    const int32_t id = prompt[i];
    const bool triple = id == ids.vision_start && i + 2 < prompt.size() &&
                        prompt[i + 1] == ids.video && prompt[i + 2] == ids.vision_end;
    const int32_t begin = out.size();
    if (triple || id == ids.video) {
      const auto written = std::span(prompt).subspan(i, triple ? 3 : 1);
      out.put_video(videos[out.media.videos.size()], ids);
      out.end_place(begin, {written.begin(), written.end()});
      i += written.size() - 1;
    } else if (id == ids.image) {
      out.media.images.push_back(out.put(id, image_rows[out.media.images.size()]));
      out.end_place(begin, {id});
    } else {
      out.ids.push_back(id);
    }
  }
  prompt = std::move(out.ids);
  return std::move(out.media);
}

int32_t expanded_length(int32_t tokens, std::span<const MediaPlace> places) {
  int32_t length = tokens;
  for (const MediaPlace& place : places) {
    if (length <= place.begin) break;  // it is not among them
    length += place.count - static_cast<int32_t>(place.written.size());
  }
  return length;
}

std::vector<int32_t> without_expansion(std::span<const int32_t> prompt,
                                       std::span<const MediaPlace> places) {
  std::vector<int32_t> ids;
  size_t at = 0;
  for (const MediaPlace& place : places) {
    const auto text = prompt.subspan(at, static_cast<size_t>(place.begin) - at);
    ids.insert(ids.end(), text.begin(), text.end());
    ids.insert(ids.end(), place.written.begin(), place.written.end());
    at = static_cast<size_t>(place.begin + place.count);
  }
  ids.insert(ids.end(), prompt.begin() + static_cast<std::ptrdiff_t>(at), prompt.end());
  return ids;
}

}  // namespace nibble
