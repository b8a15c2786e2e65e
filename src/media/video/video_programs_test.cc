// The programs that decode videos, found and kept from the system: scripts in their place say what
// they see of it.
#include "media/video/video_programs.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "media/testing/fake_programs.h"

namespace nibble {
namespace {

/// The words that a script writes to its standard error.
std::string said(const FakePrograms& programs, VideoIsolation isolation) {
  const auto found = programs.find({}, isolation);
  CHECK(found.ok(), found.error().message);
  const Descriptor input = sealed_memory_file({}).value();
  const ToolSink drop = [](std::span<const std::byte>) -> Result<void> { return {}; };
  const auto end = found.value().run({found.value().ffprobe()}, input.number(), {}, drop, nullptr);
  CHECK(end.ok(), end.error().message);
  return end.value().complaint;
}

/// Why an isolation is not tested here; empty: it is.
std::string absent(const FakePrograms& programs, VideoIsolation isolation) {
  const auto found = programs.find({}, isolation);
  CHECK(found.ok(), found.error().message);
  return found.value().isolation() == isolation ? "" : "skipped: " + found.value().description();
}

TEST(VideoPrograms, BehindBubblewrapSeeNeitherFilesNorNetworkNorProcesses) {
  const TemporaryFolder elsewhere;
  const std::string secret = (elsewhere / "secret").string();
  write_test_file(secret, "words");
  const FakePrograms programs(
      concat("cd /; echo \"secret: $(cat ", secret, " 2> /dev/null)\" >&2\n",
             "echo \"passwd: $(ls /etc/passwd 2> /dev/null)\" >&2\n",
             "echo \"links: $(grep -c : /proc/net/dev)\" >&2\n", "echo \"server: $(ls -d /proc/",
             ::getpid(), " 2> /dev/null)\" >&2\n",
             "echo \"writes: $( (: > \"$(dirname \"$0\")/new\") 2> /dev/null && echo yes)\" >&2"),
      "");
  if (const std::string why = absent(programs, VideoIsolation::bubblewrap); !why.empty())
    GTEST_SKIP() << why;
  EXPECT_EQ(said(programs, VideoIsolation::bubblewrap),
            "secret: \npasswd: \nlinks: 1\nserver: \nwrites: \n");
  EXPECT_FALSE(std::filesystem::exists(programs / "new"));
  // Without the wall the same script shows that there is something to see.
  const std::string outside = said(programs, VideoIsolation::limits);
  EXPECT_NE(outside.find("secret: words\npasswd: /etc/passwd\n"), std::string::npos) << outside;
  EXPECT_NE(outside.find(concat("server: /proc/", ::getpid(), "\n")), std::string::npos) << outside;
}

TEST(VideoPrograms, BehindUnshareHaveNoNetwork) {
  const FakePrograms programs("echo \"links: $(grep -c : /proc/net/dev)\" >&2", "");
  if (const std::string why = absent(programs, VideoIsolation::no_network); !why.empty())
    GTEST_SKIP() << why;
  EXPECT_EQ(said(programs, VideoIsolation::no_network), "links: 1\n");
}

TEST(VideoPrograms, SaysWhichProgramIsMissing) {
  const TemporaryFolder empty;
  const auto found = VideoPrograms::find(empty.path().string(), {});
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().message,
            "video: expected ffmpeg and ffprobe (5.1 or newer) in PATH, found no ffmpeg; install "
            "package ffmpeg, and util-linux for prlimit and setpriv");
}

TEST(VideoPrograms, AreThoseOfFfmpeg51) {
  constexpr std::pair<const char*, const char*> kVersions[] = {
      {"libavcodec     59. 37.100 / 59. 37.100", ""},  // 5.1
      {"libavcodec     60.  3.100 / 60.  3.100", ""},
      {"libavcodec     62. 11.100 / 62. 11.100", ""},
      {"libavcodec     59. 18.100 / 59. 18.100",
       "found an older one, of libavcodec 59.18;"},  // 5.0
      {"libavcodec     58.134.100 / 58.134.100", "found an older one, of libavcodec 58.134;"},
      {"ffmpeg version 5.1", "found programs that do not say their version;"},
      {"libavcodec     ", "found an older one, of libavcodec 0.0;"}};
  for (const auto& [version, says] : kVersions) {
    const auto found = FakePrograms("", "", version).find({}, VideoIsolation::limits);
    EXPECT_EQ(found.ok(), *says == 0) << version;
    if (found.ok()) continue;
    EXPECT_NE(found.error().message.find(says), std::string::npos) << found.error().message;
  }
}

}  // namespace
}  // namespace nibble
