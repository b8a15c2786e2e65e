// The system's ffmpeg and ffprobe behind walls: limits of time, memory and files, and no network
// and no files of the system where that can be had (VideoIsolation).
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "media/video/tool_process.h"
#include "media/video/video_probe.h"

namespace nibble {

/// How far the programs are kept from the system, strongest first. In every case the limits of
/// VideoLimits hold, and the programs are killed with the thread that waits for them.
enum class VideoIsolation {
  bubblewrap,  // bwrap: no network, no files but /usr and what programs need, no other processes
  no_network,  // unshare: a network without interfaces; the files of the system can be read
  limits       // neither works here: network and files are in reach
};

class VideoPrograms {
 public:
  /// Looks for the programs in `path`, folders as $PATH has them, and tries the isolations from
  /// `strongest` on until one works.
  /// Errors: unsupported if a program is missing, older than 5.1, or does not run; no_memory.
  static Result<VideoPrograms> find(std::string_view path, const VideoLimits& limits,
                                    VideoIsolation strongest = VideoIsolation::bubblewrap);

  VideoIsolation isolation() const { return isolation_; }
  /// For a line at start: which program, and what it is kept from.
  std::string description() const;

  const std::string& ffmpeg() const { return ffmpeg_; }
  const std::string& ffprobe() const { return ffprobe_; }

  /// Runs one of them behind the walls. Parameters and errors: run_tool's.
  Result<ToolEnd> run(const std::vector<std::string>& words, int input, const ToolLimits& limits,
                      const ToolSink& sink, const std::function<bool()>& cancelled) const;

 private:
  VideoPrograms() = default;
  Result<void> use(VideoIsolation isolation, const VideoLimits& limits);
  Result<void> try_out() const;

  VideoIsolation isolation_ = VideoIsolation::limits;
  std::string path_;
  std::string ffmpeg_;
  std::string ffprobe_;
  std::vector<std::string> wrapper_;  // goes before a program and its arguments
};

/// The last line that a program wrote to its standard error, fit for a message.
std::string last_words(std::string_view complaint);

}  // namespace nibble
