// Videos that come as lists of images: the rows of the same frames decoded, and what is refused.
#include "media/video/frame_list.h"

#include <gtest/gtest.h>

#include <new>

#include "media/testing/test_png.h"

namespace nibble {
namespace {

using Files = std::vector<std::vector<std::byte>>;

std::vector<std::byte> file_of(std::string_view text) {
  const auto bytes = bytes_of(text);
  return {bytes.begin(), bytes.end()};
}

Files pictures(size_t count, uint32_t width = 64, uint32_t height = 32) {
  return Files(count, file_of(grey_png(width, height, height)));
}

const VideoProcessor kProcessor{.frame = {.patch = 16}, .max_frames = 5};

Result<PreparedVideo> prepare(const Files& files, const VideoJudge& judge = nullptr,
                              const VideoLimits& limits = {},
                              const std::function<bool()>& cancelled = nullptr) {
  return prepare_frames(files, {.each = {}, .whole = limits}, kProcessor, judge, cancelled);
}

std::string refusal(const Files& files, const VideoLimits& limits = {}) {
  const auto video = prepare(files, nullptr, limits);
  return video.ok() ? "taken" : video.error().message;
}

TEST(FrameList, HasEveryFrameAtTheProcessorsRate) {
  const auto video = prepare(pictures(5));
  ASSERT_TRUE(video.ok()) << video.error().message;
  EXPECT_EQ(video.value().outline.frames, (std::vector<int64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(video.value().outline.times, (std::vector<double>{0.25, 1.25, 2}));
  const std::vector<RgbImage> frames(5, make_image({.width = 64, .height = 32}));
  const auto expected = prepare_video(frames, kProcessor).value();
  ASSERT_EQ(video.value().patches.size(), 3U);
  for (size_t t = 0; t < 3; ++t) EXPECT_EQ(video.value().patches[t].digest, expected[t].digest);
  EXPECT_EQ(prepare(pictures(1)).value().patches.size(), 1U);
}

TEST(FrameList, Refusals) {
  Files sizes = pictures(2);
  sizes.push_back(pictures(1, 32).front());
  EXPECT_EQ(refusal(sizes),
            "frame 3: expected 64 x 32 pixels, as frame 1, found 32 x 32; send frames of one size");
  Files damaged = pictures(3);
  damaged[1].resize(damaged[1].size() - 20);
  EXPECT_EQ(refusal(damaged).substr(0, 9), "frame 2: ");
  EXPECT_EQ(refusal({file_of("BM")}).substr(0, 9), "frame 1: ");
  EXPECT_EQ(refusal({}),
            "video: expected at least one frame, found 0; check the file, or send images instead");
  for (const size_t count : {4U, 5U}) EXPECT_EQ(refusal(pictures(count)), "taken") << count;
  EXPECT_EQ(refusal(pictures(6)), "video: expected at most 5 frames, found 6; send fewer");
  EXPECT_EQ(refusal(pictures(2), {.decode_ms_max = 0}),
            "video: expected decoding within 0 ms, found one that takes longer; send fewer or "
            "smaller frames");
}

TEST(FrameList, IsJudgedBeforeItIsDecodedAndEndsWhenTheClientLeaves) {
  Files damaged = pictures(2);
  damaged[0].resize(damaged[0].size() - 20);
  const auto judged = prepare(damaged, [](const VideoOutline& outline) -> Result<void> {
    return make_error(ErrorCode::no_space, {.what = concat(outline.patch_bytes)});
  });
  ASSERT_FALSE(judged.ok());
  const auto grid = video_grid({.width = 64, .height = 32}, 2, kProcessor).value();
  EXPECT_EQ(judged.error().message, concat(grid.patches() * 1536));
  const auto lacks =
      prepare(pictures(2), [](const VideoOutline&) -> Result<void> { throw std::bad_alloc(); });
  ASSERT_FALSE(lacks.ok());
  EXPECT_EQ(lacks.error().code, ErrorCode::no_memory);
  const auto left = prepare(pictures(2), nullptr, {}, [] { return true; });
  ASSERT_FALSE(left.ok());
  EXPECT_EQ(left.error().code, ErrorCode::cancelled);
}

}  // namespace
}  // namespace nibble
