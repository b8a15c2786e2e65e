// Placeholders of images and videos: expanded, counted, found again; against the obvious way for
// random prompts.
#include "server/images/placeholders.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace nibble {
namespace {

constexpr int32_t kImage = 9, kVideo = 8, kStart = 6, kEnd = 7;
constexpr MediaIds kIds{
    .image = kImage, .video = kVideo, .vision_start = kStart, .vision_end = kEnd};

using Ids = std::vector<int32_t>;
using Rows = std::vector<int64_t>;
using Videos = std::vector<VideoTokens>;

std::vector<int32_t> lengths_of(size_t prompt, std::span<const MediaPlace> places) {
  std::vector<int32_t> lengths;
  for (size_t tokens = 0; tokens <= prompt; ++tokens)
    lengths.push_back(expanded_length(static_cast<int32_t>(tokens), places));
  return lengths;
}

TEST(Placeholders, EachImageBecomesItsRows) {
  Ids prompt = {1, kImage, 2, kImage, kImage};
  const auto media = expand_placeholders(prompt, kIds, Rows{2, 1, 3}, {});
  ASSERT_TRUE(media.ok()) << media.error().message;
  EXPECT_EQ(prompt, (Ids{1, kImage, kImage, 2, kImage, kImage, kImage, kImage}));
  EXPECT_EQ(media.value().images, (std::vector<MediaTokens>{{1, 2}, {4, 1}, {5, 3}}));
  EXPECT_EQ(lengths_of(5, media.value().places), (Ids{0, 1, 3, 4, 5, 8}));
}

TEST(Placeholders, AVideoBecomesTimesAndFramesInPlaceOfItsMarks) {
  const Videos videos = {{.times = {{21, 22}, {23}}, .rows = 2}, {.times = {{24}}, .rows = 1}};
  Ids prompt = {1, kStart, kVideo, kEnd, kImage, kVideo, 2};
  const auto media = expand_placeholders(prompt, kIds, Rows{2}, videos);
  ASSERT_TRUE(media.ok()) << media.error().message;
  EXPECT_EQ(prompt, (Ids{1, 21, 22, kStart, kVideo, kVideo, kEnd, 23, kStart, kVideo, kVideo, kEnd,
                         kImage, kImage, 24, kStart, kVideo, kEnd, 2}));
  EXPECT_EQ(media.value().images, (std::vector<MediaTokens>{{12, 2}}));
  EXPECT_EQ(media.value().videos,
            (std::vector<std::vector<MediaTokens>>{{{4, 2}, {9, 2}}, {{16, 1}}}));
  EXPECT_EQ(media.value().places,
            (std::vector<MediaPlace>{
                {1, 11, {kStart, kVideo, kEnd}}, {12, 2, {kImage}}, {14, 4, {kVideo}}}));
  const Ids lengths = lengths_of(7, media.value().places);
  EXPECT_EQ(lengths[1], 1);
  EXPECT_EQ(Ids(lengths.begin() + 4, lengths.end()), (Ids{12, 14, 18, 19}));
}

TEST(Placeholders, AsManyAsMediaOrNoPrompt) {
  struct Row {
    Ids prompt;
    Rows rows;
    Videos videos;
    const char* says;
  };
  const Row kRows[] = {
      {{1, 2}, {4}, {}, "a place for each of 1 images, found 0"},
      {{kImage}, {}, {}, "a place for each of 0 images, found 1"},
      {{kImage, kImage}, {4}, {}, "a place for each of 1 images, found 2"},
      {{kVideo}, {}, {}, "a place for each of 0 videos, found 1"},
      {{kStart, kEnd}, {}, {{.times = {{1}}, .rows = 1}}, "each of 1 videos, found 0"},
      {{kImage}, {int64_t{1} << 31}, {}, "at most 2147483647 tokens, found 2147483648"},
      {{kVideo},
       {},
       {{.times = {{1, 2}, {1}}, .rows = int64_t{1} << 30}},
       "at most 2147483647 tokens, found 2147483656"}};
  for (const Row& row : kRows) {
    Ids prompt = row.prompt;
    const auto refused = expand_placeholders(prompt, kIds, row.rows, row.videos);
    ASSERT_FALSE(refused.ok()) << row.says;
    EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(refused.error().message.find(row.says), std::string::npos) << refused.error().message;
    EXPECT_EQ(prompt, row.prompt);
  }
}

TEST(Placeholders, LengthsAreThoseOfPrefixes) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    Ids prompt;
    std::vector<size_t> ends = {0};  // of prefixes that cut no video's marks
    Rows rows;
    Videos videos;
    for (size_t i = random() % 20; i > 0; --i) {
      const auto kind = random() % 4;
      if (kind == 0) {
        prompt.push_back(kImage);
        rows.push_back(1 + random() % 5);
      } else if (kind == 1) {
        const bool marked = random() % 2 == 0;
        prompt.insert(prompt.end(), {marked ? kStart : 1, kVideo, marked ? kEnd : 1});
        videos.push_back({.times = std::vector<Ids>(1 + random() % 3, Ids(1 + random() % 3, 30)),
                          .rows = static_cast<int64_t>(1 + random() % 4)});
      } else {
        prompt.push_back(1);
      }
      ends.push_back(prompt.size());
    }
    Ids expanded = prompt;
    const auto media = expand_placeholders(expanded, kIds, rows, videos);
    ASSERT_TRUE(media.ok());
    EXPECT_EQ(without_expansion(expanded, media.value().places), prompt);
    for (const size_t tokens : ends) {
      Ids prefix(prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(tokens));
      const auto images = static_cast<size_t>(std::ranges::count(prefix, kImage));
      const auto clips = static_cast<size_t>(std::ranges::count(prefix, kVideo));
      ASSERT_TRUE(expand_placeholders(prefix, kIds, std::span(rows).first(images),
                                      std::span(videos).first(clips))
                      .ok());
      EXPECT_EQ(expanded_length(static_cast<int32_t>(tokens), media.value().places),
                static_cast<int32_t>(prefix.size()));
    }
  }
}

}  // namespace
}  // namespace nibble
