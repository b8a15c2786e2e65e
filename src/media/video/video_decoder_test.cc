// The programs that decode videos are replaced by scripts here: what they are given, their limits,
// how they end, and what is made of their answers. video_files_test.cc has the real ones.
#include "media/video/video_decoder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "media/video/tool_process.h"
#include "testing/test_files.h"

namespace nibble {
namespace {

using std::string_literals::operator""s;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

const std::string kFile =
    "\0\0\0\x18"
    "ftypisom: the bytes of a video"s;

std::string stream(std::string_view members) {
  return concat(R"({"streams":[{)", members, R"(}],"format":{"duration":"2.5"}})");
}

const std::string kFiveFrames =
    stream(R"("width":32,"height":32,"avg_frame_rate":"2/1","nb_read_packets":"5")");

/// A folder with an ffprobe and an ffmpeg that are these scripts.
class FakePrograms {
 public:
  FakePrograms(std::string_view ffprobe, std::string_view ffmpeg) {
    put("ffprobe", ffprobe);
    put("ffmpeg", ffmpeg);
  }
  VideoDecoder decoder(const VideoLimits& limits = {},
                       VideoIsolation isolation = VideoIsolation::limits) const {
    const std::string path = concat(folder_.path().string(), ":/usr/local/bin:/usr/bin:/bin");
    auto found = VideoPrograms::find(path, limits, isolation);
    CHECK(found.ok(), found.error().message);
    return {std::move(found).value(), limits};
  }
  std::filesystem::path operator/(std::string_view name) const { return folder_ / name; }

 private:
  void put(std::string_view name, std::string_view script) {
    const auto file = folder_ / name;
    write_test_file(file, concat("#!/bin/sh\n[ \"$1\" != -version ] || exit 0\n", script, "\n"));
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
  }
  TemporaryFolder folder_;
};

std::string answer(std::string_view json) { return concat("echo '", json, "'"); }

/// Writes so many grey frames of 32 x 32.
std::string frames(int count) {
  return concat("i=0; while [ $i -lt ", count,
                " ]; do printf 'P6\\n32 32\\n255\\n'; head -c 3072 /dev/zero | tr '\\0' 'd';"
                " i=$((i+1)); done");
}

Result<PreparedVideo> prepare(const VideoDecoder& decoder,
                              const std::function<bool()>& cancelled = nullptr) {
  return decoder.prepare(bytes_of(kFile), VideoProcessor{.frame = {.patch = 16}}, cancelled);
}

std::string refusal(const Result<PreparedVideo>& video) {
  return video.ok() ? "taken" : video.error().message;
}

TEST(VideoDecoder, GivesTheProgramsTheFileAndTakesTheirFrames) {
  const std::string whole =
      "[ \"$(tail -c 20 /proc/self/fd/0)\" = 'the bytes of a video' ] || exit 9; ";
  const FakePrograms programs(whole + answer(kFiveFrames), whole + frames(5));
  for (const auto isolation : {VideoIsolation::bubblewrap, VideoIsolation::limits}) {
    const auto video = prepare(programs.decoder({}, isolation));
    ASSERT_TRUE(video.ok()) << video.error().message;
    EXPECT_EQ(video.value().frames, (std::vector<int64_t>{0, 1, 2, 3, 4}));
    EXPECT_EQ(video.value().times, (std::vector<double>{0.25, 1.25, 2}));
    EXPECT_EQ(video.value().patches.grid.t, 3);
    for (const uint8_t level : video.value().patches.levels) ASSERT_EQ(level, 'd');
  }
}

TEST(VideoDecoder, TellsTheProgramsToReadThisFileAlone) {
  const FakePrograms programs("echo \"$*\" >&2; exit 1", "");
  const std::string words = refusal(prepare(programs.decoder()));
  EXPECT_NE(words.find("found -v repeat+error -protocol_whitelist file -format_whitelist mov "
                       "-codec_whitelist h264,hevc,vp8,vp9,"),
            std::string::npos)
      << words;
}

TEST(VideoDecoder, LimitsThePrograms) {
  const FakePrograms programs(
      "echo $(ulimit -t) $(ulimit -v) $(ulimit -f) $(ulimit -n) $(ulimit -c) >&2; exit 1", "");
  const VideoLimits limits{.cpu_seconds_max = 7, .memory_bytes_max = 1 << 30};
  EXPECT_EQ(refusal(prepare(programs.decoder(limits))),
            "video: expected a file that ffmpeg can read, found 7 1048576 0 64 0; check the file");
}

TEST(VideoDecoder, CountsByDecodingWhenPacketsAreNoFrames) {
  const std::string four =
      stream(R"("width":32,"height":32,"avg_frame_rate":"2/1","nb_read_frames":"4")");
  const std::string counts = concat("case \"$*\" in *-count_frames*) ", answer(four), " ;; *) ",
                                    answer(kFiveFrames), " ;; esac");
  const auto video = prepare(FakePrograms(counts, frames(4)).decoder());
  ASSERT_TRUE(video.ok()) << video.error().message;
  EXPECT_EQ(video.value().frames.size(), 4U);
  EXPECT_EQ(refusal(prepare(FakePrograms(counts, frames(3)).decoder())),
            "video: expected as many frames as the file counts, found fewer; check the file, or "
            "encode it again");
}

TEST(VideoDecoder, RefusesWhatTheProgramsMustNotSay) {
  const std::pair<std::string, const char*> cases[] = {
      {frames(6), "frames of a video: expected 5, found more"},
      {"yes", "decoded video: expected a PPM frame, found another header"},
      {"head -c 99 /dev/zero", "decoded video: expected a PPM frame, found a longer header"},
      {"printf 'P6\\n9999999 9\\n255\\n'", "decoded video: expected a PPM frame, found another he"},
      {"printf 'P6\\n9000 9000\\n255\\n'", "video: expected at most 9437184 pixels a frame, found"},
      {"printf 'P6\\n32 32\\n255\\nabc'", "decoded video: expected a PPM frame, found an end with"},
      {"echo 'a\001b' >&2; exit 3", "video: expected a file that ffmpeg can read, found a?b"},
      {"echo '[h264 @ 0x5581] no picture' >&2; exit 3",
       "video: expected a file that ffmpeg can read, found no picture; check the file"},
      {"exit 3", "video: expected a file that ffmpeg can read, found exit status 3"},
      {"kill -XCPU $$", "video: expected decoding within 60 s of processor time and 4096 MiB"},
  };
  for (const auto& [script, words] : cases) {
    const FakePrograms programs(answer(kFiveFrames), script);
    EXPECT_EQ(refusal(prepare(programs.decoder())).substr(0, std::strlen(words)), words);
  }
}

/// The programs go on, and a child of theirs would leave a mark.
TEST(VideoDecoder, KillsProgramsThatLastAndWhatTheyStarted) {
  const FakePrograms programs("here=$(dirname \"$0\"); (sleep 1; : > \"$here/mark\") & sleep 60",
                              "");
  const auto begin = std::chrono::steady_clock::now();
  for (const auto isolation :
       {VideoIsolation::bubblewrap, VideoIsolation::no_network, VideoIsolation::limits}) {
    const auto decoder = programs.decoder({.decode_ms_max = 200}, isolation);
    EXPECT_EQ(refusal(prepare(decoder)),
              "video: expected decoding within 200 ms, found one that takes longer; send a "
              "shorter or a smaller one");
    const auto patient = programs.decoder({}, isolation);
    EXPECT_EQ(refusal(prepare(patient, [] { return true; })), "video: the client has left");
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  EXPECT_FALSE(std::filesystem::exists(programs / "mark"));
}

TEST(VideoDecoder, SaysWhichProgramIsMissing) {
  const TemporaryFolder empty;
  const auto found = VideoPrograms::find(empty.path().string(), {});
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().message,
            "video: expected ffmpeg and ffprobe (5.1 or newer) in PATH, found no ffmpeg; install "
            "package ffmpeg, and util-linux for prlimit and setpriv");
}

TEST(RunTool, CountsTheTimeOfTheProgramAlone) {
  int pieces = 0;
  const ToolSink slow = [&](std::span<const std::byte>) -> Result<void> {
    ++pieces;
    std::this_thread::sleep_for(std::chrono::milliseconds(700));
    return {};
  };
  const Descriptor input = sealed_memory_file(bytes_of("")).value();
  const auto end = run_tool({{"/bin/sh", "-c", "echo 1; sleep 0.1; echo 2"}, "/usr/bin:/bin"},
                            input.number(), {.wall_ms_max = 1000}, slow, nullptr);
  ASSERT_TRUE(end.ok()) << end.error().message;
  EXPECT_EQ(end.value().status, 0);
  EXPECT_EQ(pieces, 2);
}

TEST(SealedMemoryFile, CannotBeChanged) {
  const Descriptor file = sealed_memory_file(bytes_of("nibble")).value();
  EXPECT_EQ(::write(file.number(), "x", 1), -1);
  EXPECT_EQ(::ftruncate(file.number(), 0), -1);
}

}  // namespace
}  // namespace nibble
