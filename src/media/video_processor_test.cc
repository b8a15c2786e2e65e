// Settings of video processors, and the sizes and frames that are refused.
#include "media/video_processor.h"

#include <gtest/gtest.h>

#include "media/image_patches.h"

namespace nibble {
namespace {

VideoProcessor parsed(std::string_view text) {
  return parse_video_processor(parse_json(text, "test").value(), "config").value();
}

TEST(VideoProcessor, DefaultsAreThoseOfTheClass) {
  const VideoProcessor p = parsed("{}");
  EXPECT_EQ(p.frame.patch, 16);
  EXPECT_EQ(p.frame.min_pixels, 131072);
  EXPECT_EQ(p.frame.max_pixels, 786432);
  EXPECT_EQ(p.frame.mean[0], 0.5);
  EXPECT_EQ(p.fps, 2);
  EXPECT_EQ(p.min_frames, 4);
  EXPECT_EQ(p.max_frames, 768);
  EXPECT_FALSE(p.cap_pixels_per_frame);
}

TEST(VideoProcessor, ComesFromTheFolderOfACheckpoint) {
  const auto processor = load_video_processor(std::string(NIBBLE_SOURCE_DIR) + "/pebble/model");
  ASSERT_TRUE(processor.ok()) << processor.error().message;
  ASSERT_TRUE(processor.value().has_value());
  EXPECT_EQ(processor.value()->frame.max_pixels, 1048576);
  EXPECT_FALSE(load_video_processor(std::string(NIBBLE_SOURCE_DIR) + "/src").value().has_value());
}

TEST(VideoProcessor, WrongConfigurationsAreNamed) {
  for (const char* text :
       {"7", R"({"video_processor_type": "LlavaNextVideoProcessor"})", R"({"fps": 0})",
        R"({"fps": "2"})", R"({"fps": 1001})", R"({"min_frames": 0})", R"({"max_frames": 70000})",
        R"({"max_video_tokens": 0})", R"({"cap_pixels_per_frame": 1})", R"({"resample": 2})",
        R"({"size": {"shortest_edge": 9000, "longest_edge": 8000}})"}) {
    const auto processor = parse_video_processor(parse_json(text, "test").value(), "config");
    ASSERT_FALSE(processor.ok()) << text;
    EXPECT_TRUE(processor.error().message.starts_with("config: ")) << processor.error().message;
  }
}

TEST(VideoFrames, AreTheFirstTheLastAndEvenlyBetween) {
  const VideoProcessor p = parsed("{}");
  const auto frames = sampled_frames(100, 25, p);  // 8 frames at 2 a second
  EXPECT_EQ(frames.value(), (std::vector<int64_t>{0, 14, 28, 42, 57, 71, 85, 99}));
  EXPECT_EQ(frame_times(frames.value(), 25, 2),
            (std::vector<double>{(0 + 0.56) / 2, (1.12 + 1.68) / 2, (2.28 + 2.84) / 2,
                                 (3.4 + 3.96) / 2}));
  EXPECT_EQ(sampled_frames(1, 30, p).value(), std::vector<int64_t>{0});
  EXPECT_EQ(frame_times(std::vector<int64_t>{0, 30, 60}, 30, 2), (std::vector<double>{0.5, 2}));
  EXPECT_EQ(sampled_frames(int64_t{1} << 50, 0.001, p).value().size(), 768U);
}

TEST(VideoFrames, NoneAndImpossibleRatesAreErrors) {
  const VideoProcessor p = parsed("{}");
  EXPECT_EQ(sampled_frames(0, 25, p).error().message,
            "video: expected at least one frame, found 0; check the file, or send images instead");
  for (const double fps : {0.0, -1.0, 1000.5, std::numeric_limits<double>::quiet_NaN(),
                           std::numeric_limits<double>::infinity()})
    EXPECT_FALSE(sampled_frames(10, fps, p).ok()) << fps;
}

TEST(VideoSizes, CappedFramesHaveAFloor) {  // values of transformers' smart_resize
  const VideoProcessor p = parsed(R"({"cap_pixels_per_frame": true,
    "size": {"shortest_edge": 800000, "longest_edge": 900000}})");
  EXPECT_EQ(resized_video({1365, 1935}, 4, p).value(), (ImageSize{768, 1088}));
  EXPECT_EQ(resized_video({1183, 697}, 2, p).value(), (ImageSize{1184, 704}));
  EXPECT_EQ(resized_video({1525, 548}, 50, p).value(), (ImageSize{1536, 544}));
}

TEST(VideoSizes, ThatAreRefused) {
  const VideoProcessor p = parsed("{}");
  for (const ImageSize size : {ImageSize{0, 5}, {5, -1}, {1, 400}, {1, 65'535}, {65'535, 1}})
    EXPECT_FALSE(video_grid(size, 4, p).ok()) << size.width << " x " << size.height;
  EXPECT_FALSE(video_grid({64, 64}, 0, p).ok());
  EXPECT_EQ(resized_video({1, 1'000'000}, 4, p).error().message,
            "image: expected a longer edge of at most 200 shorter ones, found 1 x 1000000 pixels; "
            "crop it");
  EXPECT_FALSE(prepare_video({}, p).ok());
}

TEST(VideoSizes, FramesOfSeveralAreAnError) {
  std::vector<RgbImage> frames(3, RgbImage{64, 32, std::vector<uint8_t>(64 * 32 * 3)});
  EXPECT_TRUE(prepare_video(frames, parsed("{}")).ok());
  std::swap(frames[2].width, frames[2].height);
  EXPECT_EQ(
      prepare_video(frames, parsed("{}")).error().message,
      "frames of a video: expected all 64 x 32 pixels, found 32 x 64; send frames of one size");
}

}  // namespace
}  // namespace nibble
