// The programs that decode videos are replaced by scripts here: what they are given, their limits,
// how they end, and what is made of their answers. video_files_test.cc has the real ones.
#include "media/video/video_decoder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <new>
#include <thread>

#include "media/testing/fake_programs.h"
#include "media/testing/test_bytes.h"
#include "media/video/tool_process.h"

namespace nibble {
namespace {

Result<PreparedVideo> prepare(const VideoDecoder& decoder,
                              const std::function<bool()>& cancelled = nullptr) {
  return decoder.prepare(bytes_of(fake_mp4()), VideoProcessor{.frame = {.patch = 16}}, nullptr,
                         cancelled);
}

std::string refusal(const Result<PreparedVideo>& video) {
  return video.ok() ? "taken" : video.error().message;
}

TEST(VideoDecoder, GivesTheProgramsTheFileAndTakesTheirFrames) {
  const std::string whole =
      "[ \"$(tail -c 20 /proc/self/fd/0)\" = 'the bytes of a video' ] || exit 9; ";
  const FakePrograms programs(whole + echoing(five_frames()), whole + writing_frames(5));
  for (const auto isolation : {VideoIsolation::bubblewrap, VideoIsolation::limits}) {
    const auto video = prepare(programs.decoder({}, isolation));
    ASSERT_TRUE(video.ok()) << video.error().message;
    const VideoOutline& outline = video.value().outline;
    EXPECT_EQ(outline.frames, (std::vector<int64_t>{0, 1, 2, 3, 4}));
    EXPECT_EQ(outline.times, (std::vector<double>{0.25, 1.25, 2}));
    EXPECT_EQ(outline.grid.t, 3);
    ASSERT_EQ(video.value().patches.size(), 3U);
    for (const ImagePatches& step : video.value().patches) {
      EXPECT_EQ(step.grid, (ImageGrid{1, outline.grid.h, outline.grid.w}));
      for (const uint8_t level : step.levels) ASSERT_EQ(level, 'd');
    }
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
      probe_answer(R"("width":32,"height":32,"avg_frame_rate":"2/1","nb_read_frames":"4")");
  const std::string counts = concat("case \"$*\" in *-count_frames*) ", echoing(four), " ;; *) ",
                                    echoing(five_frames()), " ;; esac");
  const auto video = prepare(FakePrograms(counts, writing_frames(4)).decoder());
  ASSERT_TRUE(video.ok()) << video.error().message;
  EXPECT_EQ(video.value().outline.frames.size(), 4U);
  EXPECT_EQ(refusal(prepare(FakePrograms(counts, writing_frames(3)).decoder())),
            "video: expected as many frames as the file counts, found fewer; check the file, or "
            "encode it again");
}

TEST(VideoDecoder, RefusesWhatTheProgramsMustNotSay) {
  const std::pair<std::string, const char*> cases[] = {
      {writing_frames(6), "frames of a video: expected 5, found more"},
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
      {"printf 'P6\\n32 32\\n255\\n'; head -c 3072 /dev/zero; exit 3",
       "video: expected a file that ffmpeg can read, found exit status 3"},
      {"printf 'P6\\n64 32\\n255\\n'; head -c 6144 /dev/zero; exit 3",
       "video: expected frames of the size that the file says, found another size"},
  };
  for (const auto& [script, words] : cases) {
    const FakePrograms programs(echoing(five_frames()), script);
    EXPECT_EQ(refusal(prepare(programs.decoder())).substr(0, std::strlen(words)), words);
  }
}

/// ffmpeg says so on its way, whatever its exit status and what it wrote.
TEST(VideoDecoder, ThatLackedMemoryIsNoDamage) {
  const std::string lacks = "echo 'Error submitting a packet: Cannot allocate memory' >&2; ";
  for (const std::string& script :
       {lacks + "exit 1", lacks + writing_frames(3), lacks + writing_frames(3) + "; exit 69"}) {
    const auto video = prepare(FakePrograms(echoing(five_frames()), script).decoder());
    ASSERT_FALSE(video.ok()) << script;
    EXPECT_EQ(video.error().code, ErrorCode::no_memory);
    EXPECT_EQ(video.error().message,
              "video: expected enough memory to decode it, of at most 4096 MiB, found too little; "
              "send a smaller one or fewer at once");
  }
  const auto counted = prepare(FakePrograms(lacks + "exit 1", "").decoder());
  ASSERT_FALSE(counted.ok());
  EXPECT_EQ(counted.error().code, ErrorCode::no_memory);
  EXPECT_TRUE(prepare(FakePrograms(echoing(five_frames()), lacks + writing_frames(5)).decoder())
                  .ok());  // it had enough in the end
}

TEST(VideoDecoder, IsJudgedBeforeItIsDecoded) {
  const FakePrograms programs(echoing(five_frames()), ": > \"$(dirname \"$0\")/decoded\"");
  VideoOutline seen;
  const VideoJudge refuse = [&](const VideoOutline& outline) -> Result<void> {
    seen = outline;
    return make_error(ErrorCode::no_space, {.what = "no"});
  };
  const auto video = programs.decoder().prepare(
      bytes_of(fake_mp4()), VideoProcessor{.frame = {.patch = 16}}, refuse, nullptr);
  EXPECT_EQ(refusal(video), "no");
  EXPECT_EQ(seen.frames.size(), 5U);
  EXPECT_EQ(seen.grid.t, 3);
  EXPECT_EQ(seen.patch_bytes, seen.grid.patches() * 1536);
  EXPECT_EQ(seen.step_tokens, seen.grid.h * seen.grid.w / 4);
  EXPECT_FALSE(std::filesystem::exists(programs / "decoded"));
}

TEST(VideoDecoder, LacksMemoryItself) {
  const FakePrograms programs(echoing(five_frames()), writing_frames(5));
  const VideoJudge lacks = [](const VideoOutline&) -> Result<void> { throw std::bad_alloc(); };
  const auto video = programs.decoder().prepare(
      bytes_of(fake_mp4()), VideoProcessor{.frame = {.patch = 16}}, lacks, nullptr);
  ASSERT_FALSE(video.ok());
  EXPECT_EQ(video.error().code, ErrorCode::no_memory);
}

/// The judge let the size through that the file says, so there is memory for no larger one.
TEST(VideoDecoder, EndsAtAFrameOfAnotherSizeThanTheFileSays) {
  const FakePrograms programs(echoing(five_frames()), writing_frames(1, 640, 640) + "; sleep 60");
  EXPECT_EQ(refusal(prepare(programs.decoder({.decode_ms_max = 600'000}))),
            "video: expected frames of the size that the file says, found another size; encode it "
            "again");
}

TEST(VideoDecoder, HoldsBytesAndFramesToTheirLimits) {
  const FakePrograms programs(echoing(five_frames()), writing_frames(5));
  const auto size = fake_mp4().size();
  for (const size_t most : {size - 1, size, size + 1})
    EXPECT_EQ(prepare(programs.decoder({.encoded_bytes_max = most})).ok(), most >= size) << most;
  for (const int most : {4, 5, 6})
    EXPECT_EQ(prepare(programs.decoder({.frames_max = most})).ok(), most >= 5) << most;
  EXPECT_EQ(refusal(prepare(programs.decoder({.frames_max = 4}))),
            "video: expected at most 4 frames taken, found 5; ask for a lower fps or fewer frames");
}

/// True if a child of programs that go on after they are to be ended leaves its mark.
bool leaves_a_mark() {
  const FakePrograms programs("here=$(dirname \"$0\"); (sleep 1; : > \"$here/mark\") & sleep 6000",
                              "");
  for (const auto isolation :
       {VideoIsolation::bubblewrap, VideoIsolation::no_network, VideoIsolation::limits}) {
    const auto decoder = programs.decoder({.decode_ms_max = 200}, isolation);
    EXPECT_EQ(refusal(prepare(decoder)),
              "video: expected decoding within 200 ms, found one that takes longer; send a "
              "shorter or a smaller one");
    const auto patient = programs.decoder({.decode_ms_max = 6'000'000}, isolation);
    EXPECT_EQ(refusal(prepare(patient, [] { return true; })), "video: the client has left");
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  return std::filesystem::exists(programs / "mark");
}

/// A test that stands still while the child sleeps ends it too late: once in a few tries it does
/// not.
TEST(VideoDecoder, KillsProgramsThatLastAndWhatTheyStarted) {
  bool marked = true;
  for (int i = 0; i < 10 && marked; ++i) marked = leaves_a_mark();
  EXPECT_FALSE(marked);
}

/// A program that stands still takes its own time: once in a few tries it does not.
TEST(RunTool, CountsTheTimeOfTheProgramAlone) {
  int pieces = 0;
  const ToolSink slow = [&](std::span<const std::byte>) -> Result<void> {
    ++pieces;
    std::this_thread::sleep_for(std::chrono::milliseconds(700));
    return {};
  };
  const auto run = [&] {
    pieces = 0;
    const Descriptor input = sealed_memory_file(bytes_of("")).value();
    return run_tool({{"/bin/sh", "-c", "echo 1; sleep 0.1; echo 2"}, "/usr/bin:/bin"},
                    input.number(), {.wall_ms_max = 1000}, slow, nullptr);
  };
  auto end = run();
  for (int i = 1; i < 10 && !end.ok(); ++i) end = run();
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
