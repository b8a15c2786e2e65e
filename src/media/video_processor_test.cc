// Settings of video processors, and the sizes and frames that are refused.
#include "media/video_processor.h"

#include <gtest/gtest.h>

#include "media/image_patches.h"
#include "media/processor_request.h"
#include "testing/source_dir.h"

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

TEST(VideoFrames, AreAsManyAsAsked) {
  VideoProcessor p = parsed("{}");
  p.num_frames = 3;
  EXPECT_EQ(sampled_frames(100, 25, p).value(), (std::vector<int64_t>{0, 50, 99}));
  EXPECT_EQ(sampled_frames(2, 25, p).value(), (std::vector<int64_t>{0, 1}));
  p.num_frames = 1;
  EXPECT_EQ(sampled_frames(100, 25, p).value(), std::vector<int64_t>{0});
}

TEST(VideoProcessor, RequestsMayChangeFramesAndAreaWithinTheServers) {
  VideoProcessor p = parsed("{}");
  p.max_frames = 100;
  const auto with = [&](std::string_view text) {
    return with_request_settings(p, parse_json(text, "test").value());
  };
  EXPECT_EQ(with("{}").value().frame.max_pixels, p.frame.max_pixels);
  EXPECT_FALSE(with("{}").value().frame.keep_max);
  EXPECT_EQ(with(R"({"fps": 0.25, "do_sample_frames": true})").value().fps, 0.25);
  EXPECT_EQ(with(R"({"num_frames": 100})").value().num_frames, 100);
  EXPECT_EQ(with(R"({"max_pixels": 2048})").value().frame.max_pixels, 2048);
  EXPECT_EQ(with(R"({"max_pixels": 1, "videos_kwargs": {"max_pixels": 4096, "num_frames": 1},
                     "images_kwargs": {"max_pixels": 2048}})")
                .value()
                .frame.max_pixels,
            4096);
  EXPECT_EQ(with(R"({"fps": 1000, "num_frames": null})").value().fps, 1000);
  p.num_frames = 7;  // the server's own
  EXPECT_FALSE(with(R"({"fps": 3})").value().num_frames);
  const std::pair<const char*, const char*> kWrong[] = {
      {R"({"fps": 0})", "fps: expected a number from 0.001 to 1000, found 0;"},
      {R"({"fps": 1e-300})", "found 1e-300;"},
      {R"({"fps": 1001})", "found 1001;"},
      {R"({"fps": "2"})", "found string;"},
      {R"({"fps": 1, "num_frames": 2})",
       "fps and num_frames: expected one of the two, found both;"},
      {R"({"num_frames": 0})", "num_frames: expected a whole number from 1 to 100, found 0;"},
      {R"({"num_frames": 101})", "found 101;"},
      {R"({"num_frames": 2.5})", "found 2.5;"},
      {R"({"do_sample_frames": false})", "do_sample_frames: expected true, found boolean;"},
      {R"({"max_pixels": 786433})", "at most 786432"},
      {R"({"videos_kwargs": {"fps": -1}})", "found -1;"},
      {R"({"frames": 5})", "found frames;"}};
  for (const auto& [text, says] : kWrong) {
    const auto changed = with(text);
    ASSERT_FALSE(changed.ok()) << text;
    EXPECT_TRUE(changed.error().message.starts_with("mm_processor_kwargs: ")) << text;
    EXPECT_NE(changed.error().message.find(says), std::string::npos) << changed.error().message;
  }
}

TEST(VideoSizes, NoFrameIsLargerThanThereIsMemoryFor) {
  VideoProcessor p = parsed(R"({"size": {"shortest_edge": 4096, "longest_edge": 25165824}})");
  EXPECT_EQ(resized_video({1920, 1080}, 4, p).value(), (ImageSize{1920, 1088}));
  p.frame_pixels_max = 1024 * 1024;
  for (const int64_t frames : {1, 2, 3, 4, 5, 768}) {
    const ImageSize size = resized_video({1920, 1080}, frames, p).value();
    EXPECT_LE(size.width * size.height, p.frame_pixels_max) << frames;
  }
  const ImageSize few = resized_video({1920, 1080}, 4, p).value();
  EXPECT_EQ(few, (ImageSize{1344, 768}));
  p.frame_pixels_max = 1920 * 1088;  // exactly as much
  EXPECT_EQ(resized_video({1920, 1080}, 4, p).value(), (ImageSize{1920, 1088}));
  p.frame_pixels_max = 32 * 32;  // below the checkpoint's least
  EXPECT_EQ(resized_video({64, 64}, 2, p).value(), (ImageSize{32, 32}));
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
