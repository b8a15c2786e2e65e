// Bytes of strangers and of the programs that decode videos, read: formats, facts, frames.
#include "media/video/video_probe.h"

#include <gtest/gtest.h>

#include <span>

#include "media/testing/fake_programs.h"
#include "media/testing/test_bytes.h"
#include "media/video/ppm_stream.h"
#include "media/video/video_format.h"

namespace nibble {
namespace {

using std::string_literals::operator""s;

TEST(VideoFormat, IsToldByContent) {
  const std::pair<std::string, const char*> cases[] = {
      {"\0\0\0\x20"
       "ftypisom"s,
       "mov"},
      {"\0\0\0\x08"
       "wide\0\0\0\0"s,
       "mov"},
      {"\x1A\x45\xDF\xA3 webm"s, "matroska"},
      {"RIFF\0\0\0\0AVI LIST"s, "avi"},
      {"GIF89a..", "gif"},
      {"#EXTM3U\nfile:///etc/passwd", "found a playlist (HLS);"},
      {"ffconcat version 1.0\nfile '/etc/passwd'", "found a list of files (ffconcat);"},
      {"file '/etc/passwd'", "found another format;"},
      {"\0\0\0\x20"
       "ftypavif"s,
       "found an AVIF or HEIC image;"},
      {"RIFF\0\0\0\0WEBPVP8 "s, "found a WebP image;"},
      {"\xFF\xD8\xFF\xE0", "found a JPEG image;"},
      {"", "found no bytes;"},
      {"G", "found another format;"},
  };
  for (const auto& [bytes, words] : cases) {
    const auto format = sniff_video_format(bytes_of(bytes));
    const std::string found = format.ok() ? video_demuxer(format.value()) : format.error().message;
    EXPECT_NE(found.find(words), std::string::npos) << found;
  }
}

std::string facts_of(std::string_view json, const VideoLimits& limits = {}) {
  const auto facts = parse_probe(json, limits);
  if (!facts.ok()) return facts.error().message;
  return concat(facts.value().size.width, "x", facts.value().size.height, " ", facts.value().frames,
                " at ", facts.value().fps);
}

TEST(VideoProbe, ReadsRatesCountsAndRotation) {
  const std::string size = R"("width":640,"height":360,"nb_read_packets":"50",)";
  EXPECT_EQ(facts_of(probe_answer(size + R"("avg_frame_rate":"25/1","r_frame_rate":"50/1")")),
            "640x360 50 at 25");
  EXPECT_EQ(facts_of(probe_answer(size + R"("avg_frame_rate":"0/0","r_frame_rate":"90/1")")),
            "640x360 50 at 20");
  EXPECT_EQ(facts_of(concat(R"({"streams":[{)", size, R"("r_frame_rate":"10/1"}]})")),
            "640x360 50 at 10");
  EXPECT_EQ(facts_of(concat(R"({"streams":[{)", size, R"("r_frame_rate":"90000/1"}]})")),
            "640x360 50 at 24");
  for (const int degrees : {90, -90, 270, 180, 45})
    EXPECT_EQ(
        facts_of(probe_answer(concat(size, R"("side_data_list":[{},{"rotation":)", degrees, "}]"))),
        degrees % 180 == 0 || degrees == 45 ? "640x360 50 at 20" : "360x640 50 at 20");
}

TEST(VideoProbe, RefusesWhatIsBeyondALimit) {
  const auto of = [](int width, int height, int packets) {
    return probe_answer(concat(R"("width":)", width, R"(,"height":)", height,
                               R"(,"nb_read_packets":")", packets, R"(","avg_frame_rate":"10/1")"));
  };
  const VideoLimits limits{.pixels_max = 10'000, .edge_max = 200, .seconds_max = 10};
  EXPECT_EQ(facts_of(of(100, 100, 100), limits), "100x100 100 at 10");
  EXPECT_EQ(facts_of(of(200, 50, 99), limits), "200x50 99 at 10");
  const std::string pixels = "video: expected at most 10000 pixels a frame and 200 along an edge, ";
  EXPECT_EQ(facts_of(of(101, 100, 100), limits), pixels + "found 101 x 100; send a smaller one");
  EXPECT_EQ(facts_of(of(50, 201, 100), limits), pixels + "found 50 x 201; send a smaller one");
  EXPECT_EQ(facts_of(of(100, 100, 101), limits),
            "video: expected at most 10 s, found 10.1 s; send a shorter one");
  const std::string none =
      "video: expected at least one frame, found none that can be decoded; check the file";
  EXPECT_EQ(facts_of(of(100, 100, 0), limits), none);
  EXPECT_EQ(facts_of(of(0, 100, 1), limits), none);
  EXPECT_EQ(facts_of(probe_answer(R"("width":"3","height":3)"), limits), none);
  EXPECT_EQ(facts_of(R"({"streams":[]})"),
            "video: expected a video stream, found none (sound or data alone); send a video");
  for (const char* json : {"{}", "[]", "1", R"({"streams":{}})"})
    EXPECT_NE(facts_of(json).find("expected a list of streams"), std::string::npos) << json;
}

TEST(PpmStream, TakesBytesCutAnywhere) {
  const std::string two = "P6\n2 1\n255\nabcdefP6\n1 1\n255\nxyz";
  for (size_t piece = 1; piece <= two.size(); ++piece) {
    std::string seen;
    PpmStream frames(4, [&](const RgbImage& frame) -> Result<void> {
      seen += concat(frame.width, "x", frame.height, ":",
                     std::string(frame.pixels.begin(), frame.pixels.end()), " ");
      return {};
    });
    for (size_t at = 0; at < two.size(); at += piece)
      ASSERT_TRUE(frames.add(bytes_of(std::string_view(two).substr(at, piece))).ok());
    EXPECT_TRUE(frames.finish().ok());
    EXPECT_EQ(seen, "2x1:abcdef 1x1:xyz ");
  }
}

}  // namespace
}  // namespace nibble
