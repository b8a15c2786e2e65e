// Small files of every container through the real ffmpeg: the frames that were taken have the
// pixels that tools/oracle/video_files.py encoded without loss. Skipped where ffmpeg is missing.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>

#include "base/file.h"
#include "media/testing/fake_programs.h"
#include "media/testing/test_bytes.h"
#include "media/video/video_decoder.h"
#include "testing/source_dir.h"

namespace nibble {
namespace {

constexpr int kWidth = 64, kHeight = 48;

std::string read(std::string_view name) {
  return read_text_file(concat(NIBBLE_SOURCE_DIR, "/tests/golden/media/video/", name), 1 << 20)
      .value();
}

RgbImage frame_of(int64_t f, bool grey) {
  RgbImage image{.width = kWidth, .height = kHeight, .pixels = {}};
  for (int y = 0; y < kHeight; ++y)
    for (int x = 0; x < kWidth; ++x) {
      const int64_t red = 6 * f, green = x / 16 * 64, blue = y / 16 * 80;
      const int64_t sum = red + green + blue;
      for (const int64_t level : {grey ? sum : red, grey ? sum : green, grey ? sum : blue})
        image.pixels.push_back(static_cast<uint8_t>(level));
    }
  return image;
}

/// A quarter turn clockwise, as a player shows a file that says so.
RgbImage turned(const RgbImage& image, bool clockwise) {
  RgbImage result{.width = image.height, .height = image.width, .pixels = {}};
  for (int y = 0; y < result.height; ++y)
    for (int x = 0; x < result.width; ++x) {
      const int from_y = clockwise ? image.height - 1 - x : x;
      const int from_x = clockwise ? y : image.width - 1 - y;
      const uint8_t* from = image.pixels.data() + 3 * (size_t{1} * from_y * image.width + from_x);
      result.pixels.insert(result.pixels.end(), from, from + 3);
    }
  return result;
}

VideoProcessor processor() {
  return parse_video_processor(parse_json(R"({"size":{"shortest_edge":4096,"longest_edge":300000},
      "patch_size":16,"image_mean":[0.5,0.5,0.5],"image_std":[0.5,0.5,0.5]})",
                                          "config")
                                   .value(),
                               "config")
      .value();
}

class VideoFiles : public testing::TestWithParam<VideoIsolation> {
 protected:
  void SetUp() override {
    auto found = VideoPrograms::find(kProgramPath, VideoLimits{}, GetParam());
    if (!found.ok() && found.error().message.find("found no ff") != std::string::npos)
      GTEST_SKIP() << "skipped: ffmpeg is not installed";
    ASSERT_TRUE(found.ok()) << found.error().message;
    if (found.value().isolation() != GetParam())
      GTEST_SKIP() << "skipped: " << found.value().description();
    decoder_.emplace(std::move(found).value(), VideoLimits{});
  }

  std::string refusal(std::string_view name) const {
    const std::string file = read(name);
    const auto video = decoder_->prepare(bytes_of(file), processor(), nullptr, nullptr);
    return video.ok() ? "taken" : video.error().message;
  }

  std::optional<VideoDecoder> decoder_;
};

struct FileCase {
  const char* name;
  int frames;
  double fps;
  std::vector<int64_t> taken;
  std::vector<double> times;
};

const std::vector<int64_t> kTen = {0, 4, 9, 13, 17, 22, 26, 30, 35, 39};
const std::vector<double> kTimes = {0.25, 1.375, 2.4375, 3.5, 4.625};

const FileCase kFiles[] = {
    {"plain.mp4", 40, 8, kTen, kTimes},
    {"plain.avi", 40, 8, kTen, kTimes},
    {"plain.webm", 40, 8, kTen, kTimes},
    {"streamed.webm", 40, 8, kTen, kTimes},  // no duration
    {"grey.gif", 40, 8, kTen, kTimes},
    {"turned.mp4", 40, 8, kTen, kTimes},
    {"one.mp4", 1, 8, {0}, {0}},
    {"sounding.mp4", 40, 8, kTen, kTimes},
    // 40 frames in 12.25 s, in uneven distances: transformers counts with the average.
    {"variable.mp4",
     40,
     160.0 / 49,
     {0, 2, 3, 5, 7, 8, 10, 12, 14, 15, 17, 19, 20, 22, 24, 25, 27, 29, 31, 32, 34, 36, 37, 39},
     {}},
};

TEST_P(VideoFiles, GiveTheFramesThatWereEncoded) {
  for (const FileCase& c : kFiles) {
    SCOPED_TRACE(c.name);
    if (GetParam() != VideoIsolation::limits && &c != kFiles) continue;  // one is enough there
    const std::string file = read(c.name);
    const bool turn = std::string_view(c.name) == "turned.mp4";
    const auto facts = decoder_->probe(bytes_of(file), nullptr);
    ASSERT_TRUE(facts.ok()) << facts.error().message;
    EXPECT_EQ(facts.value().size.width, turn ? kHeight : kWidth);
    EXPECT_EQ(facts.value().frames, c.frames);
    EXPECT_DOUBLE_EQ(facts.value().fps, c.fps);
    const auto video = decoder_->prepare(bytes_of(file), processor(), nullptr, nullptr);
    ASSERT_TRUE(video.ok()) << video.error().message;
    const VideoOutline& outline = video.value().outline;
    EXPECT_EQ(outline.frames, c.taken);
    if (!c.times.empty()) {
      EXPECT_EQ(outline.times, c.times);
    }
    std::vector<RgbImage> frames;
    for (const int64_t f : outline.frames) {
      const RgbImage frame = frame_of(f, std::string_view(c.name) == "grey.gif");
      frames.push_back(turn ? turned(frame, false) : frame);
    }
    const std::vector<ImagePatches> expected = prepare_video(frames, processor()).value();
    ASSERT_EQ(video.value().patches.size(), expected.size());
    for (size_t t = 0; t < expected.size(); ++t) {
      EXPECT_EQ(video.value().patches[t].grid, expected[t].grid);
      EXPECT_TRUE(video.value().patches[t].levels == expected[t].levels) << t;
      EXPECT_EQ(video.value().patches[t].digest, expected[t].digest) << t;
    }
  }
}

TEST_P(VideoFiles, RefuseSoundAloneAndDamage) {
  EXPECT_EQ(refusal("sound.m4a"),
            "video: expected a video stream, found none (sound or data alone); send a video");
  const std::string cut = read("plain.mp4").substr(0, 4000);
  const auto video = decoder_->prepare(bytes_of(cut), processor(), nullptr, nullptr);
  ASSERT_FALSE(video.ok());
  EXPECT_EQ(video.error().code, ErrorCode::corrupt);
  EXPECT_NE(video.error().message.find("expected a file that ffmpeg can read"), std::string::npos)
      << video.error().message;
}

/// The pictures of naming.mp4 are, it says, in another file, which holds them here.
TEST_P(VideoFiles, ReadNoFileThatAVideoNames) {
  constexpr std::string_view kNamed = "/tmp/nibble-named.mp4";
  std::string pattern = "/tmp/nibbleXXXXXX.mp4";  // as long as kNamed
  ASSERT_EQ(pattern.size(), kNamed.size());
  const int made = ::mkstemps(pattern.data(), 4);
  ASSERT_GE(made, 0);
  ::close(made);
  std::string file = read("naming.mp4");
  const size_t at = file.find(kNamed);
  ASSERT_NE(at, std::string::npos);
  file.replace(at, kNamed.size(), pattern);
  write_test_file(pattern, read("plain.mp4"));
  const auto video = decoder_->prepare(bytes_of(file), processor(), nullptr, nullptr);
  // The programs as anybody else starts them do read it, so that there is something to refuse.
  const TemporaryFolder folder;
  write_test_file(folder / "naming.mp4", file);
  const std::string plain =
      concat("ffprobe -v error -enable_drefs 1 -use_absolute_path 1 -count_frames -show_entries ",
             "stream=nb_read_frames -of csv=p=0 ", (folder / "naming.mp4").string(), " > ",
             (folder / "frames").string(), " 2> /dev/null");
  EXPECT_EQ(std::system(plain.c_str()), 0);
  std::filesystem::remove(pattern);
  EXPECT_EQ(read_test_file(folder / "frames"), "40\n");
  ASSERT_FALSE(video.ok());
  EXPECT_EQ(video.error().message.substr(0, 7), "video: ") << video.error().message;
}

TEST_P(VideoFiles, EndWhenTheClientLeaves) {
  const std::string file = read("plain.mp4");
  const auto video = decoder_->prepare(bytes_of(file), processor(), nullptr, [] { return true; });
  ASSERT_FALSE(video.ok());
  EXPECT_EQ(video.error().code, ErrorCode::cancelled);
}

INSTANTIATE_TEST_SUITE_P(Isolations, VideoFiles,
                         testing::Values(VideoIsolation::bubblewrap, VideoIsolation::no_network,
                                         VideoIsolation::limits));

}  // namespace
}  // namespace nibble
