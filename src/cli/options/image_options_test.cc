// Flags about images: their defaults, vLLM's forms, every bound; and the ImageIntake that a
// checkpoint's files make of them.
#include "cli/options/image_options.h"

#include <gtest/gtest.h>

#include <fstream>

#include "testing/test_files.h"

namespace nibble {
namespace {

Result<ImageFlags> flags_of(std::vector<std::string> words) {
  words.insert(words.begin(), "folder");
  const Arguments arguments = TRY(parse_arguments(
      kServeVerb, words, [](const std::string&) -> std::optional<std::string> { return {}; }));
  return read_image_flags(arguments);
}

TEST(ImageFlags, Defaults) {
  const ImageFlags flags = flags_of({}).value();
  EXPECT_EQ(flags.intake.images_max, 8U);
  EXPECT_EQ(flags.intake.videos.videos_max, 4U);
  EXPECT_EQ(flags.intake.videos.limits.encoded_bytes_max, size_t{32} << 20);
  EXPECT_EQ(flags.intake.videos.limits.frames_max, 768);
  EXPECT_EQ(flags.intake.videos.limits.decode_ms_max, 60'000);
  EXPECT_EQ(flags.intake.videos.limits.cpu_seconds_max, 60);
  EXPECT_EQ(flags.intake.limits.encoded_bytes_max, size_t{20} << 20);
  EXPECT_EQ(flags.intake.limits.pixels_max, 33'000'000);
  EXPECT_EQ(flags.intake.limits.aspect_max, 200);
  EXPECT_EQ(flags.intake.limits.decode_ms_max, 10'000);
  EXPECT_EQ(flags.intake.memory_bytes_max, size_t{2} << 30);
  EXPECT_GE(flags.threads, 1);
  EXPECT_LE(flags.threads, 4);
  EXPECT_FALSE(flags.pixels_min || flags.pixels_max);
  EXPECT_EQ(flags.intake.fetcher, nullptr);
}

TEST(ImageFlags, LimitsInTheFormsOfVllm) {
  struct Row {
    std::vector<std::string> words;
    size_t images, videos;
  };
  const Row kRows[] = {
      {{"--limit-mm-per-prompt", "image=2"}, 2, 4},
      {{"--limit-mm-per-prompt", "image=2,video=0"}, 2, 0},
      {{"--limit-mm-per-prompt", "video=0"}, 8, 0},
      {{"--limit-mm-per-prompt", R"({"image": 3, "video": 1, "audio": 9})"}, 3, 1},
      {{"--limit-mm-per-prompt", R"({"image": {"count": 4, "width": 512}})"}, 4, 4},
      {{"--limit-mm-per-prompt", R"({"video": {"count": 2, "num_frames": 32}})"}, 8, 2},
      {{"--limit-mm-per-prompt", R"({"image": {"width": 512}, "video": {"width": 9}})"}, 8, 4},
      {{"--limit-mm-per-prompt.image", "5"}, 5, 4},
      {{"--limit-mm-per-prompt.image.count=6", "--limit-mm-per-prompt.video", "0"}, 6, 0},
      {{"--limit-mm-per-prompt", "image=0"}, 0, 4}};
  for (const Row& row : kRows) {
    const auto flags = flags_of(row.words);
    ASSERT_TRUE(flags.ok()) << row.words.back() << ": " << flags.error().message;
    EXPECT_EQ(flags.value().intake.images_max, row.images) << row.words.back();
    EXPECT_EQ(flags.value().intake.videos.videos_max, row.videos) << row.words.back();
  }
}

struct Bound {
  const char* flag;
  const char* least;
  const char* most;
  const char* below;
  const char* above;
};

TEST(ImageFlags, HoldTheirBounds) {
  constexpr Bound kBounds[] = {
      {"limit-mm-per-prompt", "image=0", "image=1024", "image=-1", "image=1025"},
      {"max-image-bytes", "1", "4G", "0", "4294967297"},
      {"limit-mm-per-prompt", "video=0", "video=1024", "video=-1", "video=1025"},
      {"max-video-bytes", "1", "4G", "0", "4294967297"},
      {"max-video-frames", "1", "4096", "0", "4097"},
      {"video-timeout", "1", "3600", "0", "3601"},
      {"max-image-pixels", "1", "1073741824", "0", "1073741825"},
      {"max-image-aspect", "1", "200", "0", "201"},
      {"image-timeout", "1", "3600", "0", "3601"},
      {"max-image-memory", "1", "1024G", "0", "1025G"},
      {"image-threads", "0", "4", "-1", "257"},
      {"media-fetch-timeout", "1", "600", "0", "601"},
      {"mm-processor-kwargs", R"({"max_pixels":1})", R"({"min_pixels":1073741824})",
       R"({"max_pixels":0})", R"({"max_pixels":1073741825})"},
      {"mm-processor-kwargs", R"({"fps":0.001})", R"({"fps":1000})", R"({"fps":0.0009})",
       R"({"fps":1000.5})"},
      {"mm-processor-kwargs", R"({"num_frames":1})", R"({"num_frames":4096})",
       R"({"num_frames":0})", R"({"num_frames":4097})"},
      {"mm-processor-kwargs", R"({"fps":1,"max_pixels":9})", "{}", R"({"fps":1,"num_frames":2})",
       R"({"frames":1})"}};
  for (const Bound& bound : kBounds) {
    const std::string flag = concat("--", bound.flag);
    for (const char* sound : {bound.least, bound.most})
      EXPECT_TRUE(flags_of({flag, sound}).ok()) << flag << " " << sound;
    for (const char* wrong : {bound.below, bound.above}) {
      const auto refused = flags_of({concat(flag, "=", wrong)});
      ASSERT_FALSE(refused.ok()) << flag << " " << wrong;
      EXPECT_NE(refused.error().message.find(flag), std::string::npos) << refused.error().message;
    }
  }
  for (const char* wrong : {"5", "{", "[]", R"({"pixels":5})", R"({"max_pixels":"5"})"})
    EXPECT_FALSE(flags_of({"--mm-processor-kwargs", wrong}).ok()) << wrong;
}

TEST(ImageFlags, ThreadsThatHaveMemoryToDecode) {
  const auto refused = flags_of({"--image-threads", "5"});
  ASSERT_FALSE(refused.ok());  // 450 MB each, for the largest JPEG
  EXPECT_NE(refused.error().message.find("--image-threads: expected at most 4, as each may need "),
            std::string::npos)
      << refused.error().message;
  EXPECT_EQ(flags_of({"--image-threads", "9", "--max-image-memory", "4G"}).value().threads, 9);
  EXPECT_FALSE(flags_of({"--image-threads", "10", "--max-image-memory", "4G"}).ok());
  EXPECT_EQ(flags_of({"--image-threads", "256", "--max-image-memory", "1000G"}).value().threads,
            256);
  EXPECT_TRUE(flags_of({"--image-threads", "20", "--max-image-pixels", "1M"}).ok());
  // Where there is not enough for one, one works.
  EXPECT_EQ(flags_of({"--max-image-memory", "1"}).value().threads, 1);
  EXPECT_FALSE(flags_of({"--max-image-memory", "1", "--image-threads", "2"}).ok());
}

TEST(ImageFlags, HostsToFetchFrom) {
  EXPECT_NE(flags_of({"--allowed-media-domains", "example.org,*.cdn.test"}).value().intake.fetcher,
            nullptr);
  const auto wrong = flags_of({"--allowed-media-domains", "https://example.org"});
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.error().message.find("--allowed-media-domains"), std::string::npos)
      << wrong.error().message;
}

/// A folder with a preprocessor_config.json, and the facts of the tower beside it.
class ImageIntakes : public ::testing::Test {
 protected:
  void SetUp() override {
    write(R"({"image_processor_type":"Qwen2VLImageProcessorFast","patch_size":16,"merge_size":2,
              "temporal_patch_size":2,"size":{"shortest_edge":65536,"longest_edge":16777216},
              "image_mean":[0.5,0.5,0.5],"image_std":[0.5,0.5,0.5]})");
    config_.vision = VisionConfig{
        .patch = 16, .temporal_patch = 2, .merge = 2, .image_token = 7, .video_token = 8};
  }
  void write(const std::string& text) const {
    std::ofstream(folder_.path() / "preprocessor_config.json") << text;
  }
  Result<std::shared_ptr<const ImageIntake>> make(const std::vector<std::string>& words,
                                                  int64_t tokens_max = 1024) {
    notice_.clear();
    return make_image_intake(flags_of(words).value(), config_, tokens_max, folder_.path(), notice_);
  }
  int64_t pixels(const std::vector<std::string>& words, int64_t tokens_max) {
    return make(words, tokens_max).value()->options().processor.max_pixels;
  }

  TemporaryFolder folder_;
  ModelConfig config_;
  std::string notice_;
};

TEST_F(ImageIntakes, PixelsByMemoryAndFlag) {
  EXPECT_EQ(pixels({}, 1 << 16), 16777216);
  EXPECT_NE(notice_.find("16777216 pixels (16384 tokens)\n"), std::string::npos) << notice_;
  EXPECT_EQ(pixels({}, 1024), 1 << 20);
  EXPECT_NE(notice_.find("1048576 pixels (1024 tokens; the checkpoint's own bound is 16384)\n"),
            std::string::npos)
      << notice_;
  EXPECT_EQ(pixels({"--mm-processor-kwargs.max_pixels", "65536"}, 1024), 65536);
  EXPECT_EQ(pixels({"--mm-processor-kwargs.max_pixels", "1048576"}, 1024), 1 << 20);
  EXPECT_EQ(pixels({"--mm-processor-kwargs.max_pixels", "33554432"}, 1 << 16), 33554432);
  for (const char* wrong : {"1048577", "1023"}) {
    const auto refused = make({"--mm-processor-kwargs.max_pixels", wrong}, 1024);
    ASSERT_FALSE(refused.ok()) << wrong;
    EXPECT_NE(refused.error().message.find("--mm-processor-kwargs"), std::string::npos);
  }
  const ImageIntakeOptions options = make({"--limit-mm-per-prompt", "image=3"}).value()->options();
  EXPECT_EQ(options.images_max, 3U);
  EXPECT_EQ(options.tokens_max, 1024);
  EXPECT_EQ(options.image_token, 7);
  EXPECT_EQ(options.video_token, 8);
}

TEST_F(ImageIntakes, NoneWhereNoneAreTaken) {
  EXPECT_EQ(make({"--limit-mm-per-prompt", "image=0,video=0"}).value(), nullptr);
  EXPECT_EQ(notice_, "");
  std::filesystem::remove(folder_.path() / "preprocessor_config.json");
  EXPECT_EQ(make({}).value(), nullptr);
  EXPECT_NE(notice_.find("no preprocessor_config.json"), std::string::npos) << notice_;
  config_.vision.reset();
  EXPECT_EQ(make({}).value(), nullptr);
  EXPECT_EQ(notice_, "");
}

TEST_F(ImageIntakes, VideosByFolderAndFlag) {
  const auto write_video = [this](const std::string& text) {
    std::ofstream(folder_.path() / "video_preprocessor_config.json") << text;
  };
  // Without a file that says how, none are taken.
  EXPECT_EQ(make({}).value()->options().videos.videos_max, 0U);
  EXPECT_NE(notice_.find("no video_preprocessor_config.json: requests with videos are refused\n"),
            std::string::npos)
      << notice_;
  write_video(R"({"patch_size":16,"size":{"shortest_edge":4096,"longest_edge":25165824}})");
  const VideoIntakeOptions videos =
      make({"--max-video-frames", "5"}, 1024).value()->options().videos;
  EXPECT_EQ(videos.videos_max, 4U);
  EXPECT_EQ(videos.processor.max_frames, 5);
  EXPECT_EQ(videos.processor.fps, 2);
  EXPECT_EQ(videos.processor.frame_pixels_max, 1 << 20);
  EXPECT_NE(notice_.find("videos: at most 4 a request, each at most 5 frames and 12288 tokens; "),
            std::string::npos)
      << notice_;
  const auto only =
      make({"--limit-mm-per-prompt", "image=0,video=1", "--mm-processor-kwargs.fps", "0.5"});
  EXPECT_EQ(only.value()->options().images_max, 0U);
  EXPECT_EQ(only.value()->options().videos.videos_max, 1U);
  EXPECT_EQ(only.value()->options().videos.processor.fps, 0.5);
  EXPECT_EQ(make({"--mm-processor-kwargs.num_frames", "4096"})
                .value()
                ->options()
                .videos.processor.num_frames,
            768);
  EXPECT_EQ(make({"--limit-mm-per-prompt", "video=0"}).value()->options().videos.videos_max, 0U);
  EXPECT_EQ(notice_.find("videos"), std::string::npos) << notice_;
  write_video(R"({"patch_size":14})");
  const auto other = make({});
  ASSERT_FALSE(other.ok());
  EXPECT_TRUE(other.error().message.starts_with("video_preprocessor_config.json: "));
}

TEST_F(ImageIntakes, AProcessorOfAnotherTowerIsRefused) {
  config_.vision->patch = 14;
  const auto made = make({});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, ErrorCode::corrupt);
  EXPECT_NE(made.error().message.find("expected patches of 14 pixels"), std::string::npos)
      << made.error().message;
}

}  // namespace
}  // namespace nibble
