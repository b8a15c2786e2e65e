// Each program is started through util-linux's prlimit, which sets the limits, and through bwrap or
// unshare and setpriv: so nothing but posix_spawn happens in this process.
#include "media/video/video_programs.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <new>
#include <utility>

namespace nibble {
namespace {

using Words = std::vector<std::string>;

constexpr int kProcessesMax = 128;  // processes of a user namespace, threads among them
constexpr int kFilesMax = 64;
constexpr int kTryMs = 20'000;
constexpr int64_t kVersionBytesMax = 64 << 10;

/// The first executable file of this name in folders as $PATH has them; empty if there is none.
std::string program(std::string_view path, std::string_view name) {
  while (!path.empty()) {
    const size_t end = std::min(path.find(':'), path.size());
    const std::string file = concat(path.substr(0, end), "/", name);
    std::error_code ignored;
    if (file[0] == '/' && ::access(file.c_str(), X_OK) == 0 &&
        std::filesystem::is_regular_file(file, ignored))
      return file;
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return {};
}

Error missing(std::string_view found) {
  return make_error(ErrorCode::unsupported,
                    {"video", "ffmpeg and ffprobe (5.1 or newer) in PATH", found,
                     "install package ffmpeg, and util-linux for prlimit and setpriv"});
}

/// The age of each program is told by its libavcodec: builds from source say no version of ffmpeg.
Result<void> check_versions(std::string_view text) {
  constexpr std::string_view kLibrary = "libavcodec ";
  constexpr std::pair kLeast(59, 37);  // of ffmpeg 5.1
  int programs = 0;
  while (text.find(kLibrary) != text.npos) {  // "libavcodec     59. 37.100 / 59. 37.100"
    text.remove_prefix(text.find(kLibrary) + kLibrary.size());
    std::pair found(0, 0);
    for (int* part : {&found.first, &found.second}) {
      text.remove_prefix(std::min(text.find_first_not_of(" ."), text.size()));
      std::from_chars(text.data(), text.data() + text.size(), *part);
      text.remove_prefix(std::min(text.find('.'), text.size()));
    }
    if (found < kLeast)
      return missing(concat("an older one, of libavcodec ", found.first, ".", found.second));
    ++programs;
  }
  return programs == 2 ? Result<void>() : missing("programs that do not say their version");
}

void add(Words& words, const Words& more) { words.insert(words.end(), more.begin(), more.end()); }

/// The programs see /usr, where they lie, what the loader of libraries needs, and nothing else.
Words bubblewrap(const std::string& bwrap, const Words& programs) {
  Words words = {bwrap, "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"};
  add(words, {"--ro-bind", "/usr", "/usr"});
  for (const char* path : {"/bin", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/alternatives"})
    add(words, {"--ro-bind-try", path, path});
  for (const std::string& file : programs) {
    const std::string folder = std::filesystem::path(file).parent_path().string();
    if (!folder.starts_with("/usr/") && folder != "/bin") add(words, {"--ro-bind", folder, folder});
  }
  add(words, {"--proc", "/proc", "--dev", "/dev", "--chdir", "/"});
  return words;
}

}  // namespace

Result<VideoPrograms> VideoPrograms::find(std::string_view path, const VideoLimits& limits,
                                          VideoIsolation strongest) try {
  VideoPrograms programs;
  programs.path_ = path;
  programs.ffmpeg_ = program(path, "ffmpeg");
  programs.ffprobe_ = program(path, "ffprobe");
  if (programs.ffmpeg_.empty()) return missing("no ffmpeg");
  if (programs.ffprobe_.empty()) return missing("no ffprobe");
  for (const auto isolation : {VideoIsolation::bubblewrap, VideoIsolation::no_network})
    if (isolation >= strongest && programs.use(isolation, limits).ok()) return programs;
  TRY(programs.use(VideoIsolation::limits, limits));
  return programs;
} catch (const std::bad_alloc&) {
  return make_error(ErrorCode::no_memory, {.what = "looking for ffmpeg"});
}

Result<void> VideoPrograms::use(VideoIsolation isolation, const VideoLimits& limits) {
  isolation_ = isolation;
  const std::string outer = isolation == VideoIsolation::bubblewrap   ? program(path_, "bwrap")
                            : isolation == VideoIsolation::no_network ? program(path_, "unshare")
                                                                      : std::string();
  const std::string prlimit = program(path_, "prlimit"), setpriv = program(path_, "setpriv");
  if (isolation != VideoIsolation::limits && outer.empty()) return missing("no such program");
  if (prlimit.empty() || setpriv.empty()) return missing("no prlimit or no setpriv");
  wrapper_.clear();
  if (isolation == VideoIsolation::bubblewrap)
    add(wrapper_, bubblewrap(outer, {ffmpeg_, ffprobe_}));
  if (isolation == VideoIsolation::no_network) add(wrapper_, {outer, "--user", "--net", "--"});
  if (isolation != VideoIsolation::bubblewrap)
    add(wrapper_, {setpriv, "--pdeathsig", "KILL", "--"});
  add(wrapper_,
      {prlimit, concat("--cpu=", limits.cpu_seconds_max), concat("--as=", limits.memory_bytes_max),
       "--core=0", "--fsize=0", concat("--nofile=", kFilesMax)});
  // Outside a namespace the processes of the whole user would count.
  if (isolation != VideoIsolation::limits) add(wrapper_, {concat("--nproc=", kProcessesMax)});
  add(wrapper_, {"--"});
  return try_out();
}

std::string VideoPrograms::description() const {
  const char* kept = isolation_ == VideoIsolation::bubblewrap
                         ? "by bubblewrap, without network and files of the system"
                     : isolation_ == VideoIsolation::no_network
                         ? "without network (bubblewrap does not work here)"
                         : "with the network in reach (neither bubblewrap nor unshare work here)";
  return concat("video is decoded by ", ffmpeg_, ", ", kept);
}

Result<ToolEnd> VideoPrograms::run(const Words& words, int input, const ToolLimits& limits,
                                   const ToolSink& sink,
                                   const std::function<bool()>& cancelled) const {
  Words all = wrapper_;
  add(all, words);
  return run_tool({all, path_}, input, limits, sink, cancelled);
}

/// Both programs start, are new enough, and can read their standard input by its name.
Result<void> VideoPrograms::try_out() const {
  const std::string_view word = "nibble";
  const Descriptor file = TRY(sealed_memory_file(std::as_bytes(std::span(word))));
  std::string output;
  const ToolSink keep = [&](std::span<const std::byte> data) -> Result<void> {
    output.append(reinterpret_cast<const char*>(data.data()), data.size());
    return {};
  };
  const char* script = "head -c 6 /proc/self/fd/0 && \"$0\" -version && \"$1\" -version";
  const ToolEnd end =
      TRY(run({"/bin/sh", "-c", script, ffmpeg_, ffprobe_}, file.number(),
              {.wall_ms_max = kTryMs, .output_bytes_max = kVersionBytesMax}, keep, nullptr));
  if (end.status != 0 || !output.starts_with(word))
    return missing(concat("programs that do not run: ", last_words(end.complaint)));
  return check_versions(output);
}

std::string last_words(std::string_view complaint) {
  constexpr size_t kMost = 200;
  while (complaint.ends_with('\n')) complaint.remove_suffix(1);
  complaint = complaint.substr(complaint.find_last_of('\n') + 1);
  if (const size_t name = complaint.find("] "); complaint.starts_with('[') && name < kMost)
    complaint.remove_prefix(name + 2);  // "[h264 @ 0x5581c0de] "
  std::string text;
  for (const char c : complaint.substr(0, kMost)) text += c >= ' ' && c <= '~' ? c : '?';
  return text;
}

}  // namespace nibble
