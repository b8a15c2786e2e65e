// ffprobe writes counts, rates and durations as texts, and leaves out what it does not know.
#include "media/video/video_probe.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>

#include "base/json.h"

namespace nibble {
namespace {

constexpr double kRateMax = 1000;  // frames a second, as sampled_frames takes them
constexpr double kRateUnknown = 24;

Error refused(std::string_view expected, std::string_view found, std::string_view advice) {
  return make_error(ErrorCode::invalid_argument, {"video", expected, found, advice});
}

std::optional<double> number(std::string_view text) {
  double value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size() || !std::isfinite(value))
    return std::nullopt;
  return value;
}

std::string text_of(const Json& from, std::string_view key) {
  const Json* value = from.find(key);
  return value && value->is_string() ? value->as_string() : std::string();
}

/// "30000/1001"; nothing for "0/0" and for rates that no camera has.
std::optional<double> rate_of(const Json& stream, std::string_view key) {
  const std::string text = text_of(stream, key);
  const size_t slash = text.find('/');
  if (slash == std::string::npos) return std::nullopt;
  const auto above = number(std::string_view(text).substr(0, slash));
  const auto below = number(std::string_view(text).substr(slash + 1));
  if (!above || !below || *below == 0) return std::nullopt;
  const double rate = *above / *below;
  return rate > 0 && rate <= kRateMax ? std::optional(rate) : std::nullopt;
}

int64_t frames_of(const Json& stream) {
  for (const char* key : {"nb_read_frames", "nb_read_packets"})
    if (const auto count = number(text_of(stream, key)); count && *count >= 1 && *count < 1e9)
      return static_cast<int64_t>(*count);
  return 0;
}

std::optional<double> seconds_of(const Json& root, const Json& stream) {
  const Json* format = root.find("format");
  auto seconds = number(text_of(stream, "duration"));
  if (!seconds && format) seconds = number(text_of(*format, "duration"));
  return seconds && *seconds > 0 ? seconds : std::nullopt;
}

double fps_of(const Json& root, const Json& stream, int64_t frames) {
  if (const auto rate = rate_of(stream, "avg_frame_rate")) return *rate;
  if (const auto seconds = seconds_of(root, stream))
    if (const double rate = static_cast<double>(frames) / *seconds; rate <= kRateMax) return rate;
  return rate_of(stream, "r_frame_rate").value_or(kRateUnknown);
}

/// True for a quarter turn either way, as ffmpeg decides it.
bool is_turned(const Json& stream) {
  const Json* list = stream.find("side_data_list");
  if (!list || !list->is_array()) return false;
  for (const Json& data : list->as_array()) {
    const Json* rotation = data.find("rotation");
    if (!rotation || !rotation->is_number()) continue;
    const double degrees = std::fabs(std::fmod(rotation->as_double(), 360));
    return std::fabs(degrees - 90) < 1 || std::fabs(degrees - 270) < 1;
  }
  return false;
}

int edge_of(const Json& stream, std::string_view key) {
  const Json* value = stream.find(key);
  if (!value || !value->is_int()) return 0;
  return static_cast<int>(std::clamp<int64_t>(value->as_int(), 0, 1 << 30));
}

Result<void> check(const VideoFacts& facts, const VideoLimits& limits) {
  const auto [width, height] = facts.size;
  if (width < 1 || height < 1 || facts.frames < 1)
    return refused("at least one frame", "none that can be decoded", "check the file");
  if (std::max(width, height) > limits.edge_max || int64_t{width} * height > limits.pixels_max)
    return refused(concat("at most ", limits.pixels_max, " pixels a frame and ", limits.edge_max,
                          " along an edge"),
                   concat(width, " x ", height), "send a smaller one");
  const double seconds = static_cast<double>(facts.frames) / facts.fps;
  if (seconds > limits.seconds_max)
    return refused(concat("at most ", limits.seconds_max, " s"), concat(seconds, " s"),
                   "send a shorter one");
  return {};
}

}  // namespace

Result<VideoFacts> parse_probe(std::string_view json, const VideoLimits& limits) {
  const Json root = TRY(parse_json(json, "ffprobe's answer", {.bytes_max = 1 << 20}));
  const Json* streams = root.find("streams");
  if (!streams || !streams->is_array())
    return make_error(ErrorCode::corrupt, {"ffprobe's answer", "a list of streams", "none",
                                           "check that ffprobe in PATH is the real one"});
  if (streams->as_array().empty())
    return refused("a video stream", "none (sound or data alone)", "send a video");
  const Json& stream = streams->as_array()[0];
  VideoFacts facts;
  facts.frames = frames_of(stream);
  facts.size = {.width = edge_of(stream, "width"), .height = edge_of(stream, "height")};
  if (is_turned(stream)) std::swap(facts.size.width, facts.size.height);
  facts.fps = fps_of(root, stream, facts.frames);
  TRY(check(facts, limits));
  return facts;
}

}  // namespace nibble
