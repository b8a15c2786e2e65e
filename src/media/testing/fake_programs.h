// For tests: scripts in the place of ffprobe and ffmpeg, and what they write.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/check.h"
#include "media/video/video_decoder.h"
#include "testing/test_files.h"

namespace nibble {

/// Folders of programs, as $PATH has them.
inline constexpr std::string_view kProgramPath = "/usr/local/bin:/usr/bin:/bin";

/// The bytes of an MP4 file, as far as anybody looks who is no decoder.
inline std::string fake_mp4() {
  using std::string_literals::operator""s;
  return "\0\0\0\x18"
         "ftypisom: the bytes of a video"s;
}

/// ffprobe's JSON of one stream.
inline std::string probe_answer(std::string_view members) {
  return concat(R"({"streams":[{)", members, R"(}],"format":{"duration":"2.5"}})");
}

/// Five frames of 32 x 32, two a second.
inline std::string five_frames() {
  return probe_answer(R"("width":32,"height":32,"avg_frame_rate":"2/1","nb_read_packets":"5")");
}

/// A script that writes this text.
inline std::string echoing(std::string_view text) { return concat("echo '", text, "'"); }

/// A script that writes so many frames in one shade of grey, as ffmpeg does.
inline std::string writing_frames(int count, int width = 32, int height = 32) {
  return concat("i=0; while [ $i -lt ", count, " ]; do printf 'P6\\n", width, " ", height,
                "\\n255\\n'; head -c ", 3 * width * height,
                " /dev/zero | tr '\\0' 'd'; i=$((i+1)); done");
}

/// A folder with an ffprobe and an ffmpeg that are these scripts.
class FakePrograms {
 public:
  FakePrograms(std::string_view ffprobe, std::string_view ffmpeg,
               std::string_view version = "libavcodec     59. 37.100 / 59. 37.100") {
    put("ffprobe", ffprobe, version);
    put("ffmpeg", ffmpeg, version);
  }
  Result<VideoPrograms> find(const VideoLimits& limits, VideoIsolation isolation) const {
    return VideoPrograms::find(concat(folder_.path().string(), ":", kProgramPath), limits,
                               isolation);
  }
  VideoDecoder decoder(const VideoLimits& limits = {},
                       VideoIsolation isolation = VideoIsolation::limits) const {
    auto found = find(limits, isolation);
    CHECK(found.ok(), found.error().message);
    return {std::move(found).value(), limits};
  }
  std::filesystem::path operator/(std::string_view name) const { return folder_ / name; }

 private:
  void put(std::string_view name, std::string_view script, std::string_view version) {
    const auto file = folder_ / name;
    write_test_file(file, concat("#!/bin/sh\n[ \"$1\" != -version ] || { echo '", version,
                                 "'; exit 0; }\n", script, "\n"));
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
  }
  TemporaryFolder folder_;
};

}  // namespace nibble
