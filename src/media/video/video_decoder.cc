// The arguments of ffprobe and ffmpeg, and their answers.
#include "media/video/video_decoder.h"

#include <csignal>
#include <new>
#include <optional>

#include "media/video/ppm_stream.h"
#include "media/video/tool_process.h"
#include "media/video/video_format.h"

namespace nibble {
namespace {

using Words = std::vector<std::string>;

constexpr std::string_view kInput = "file:/proc/self/fd/0";
constexpr std::string_view kDecoders =
    "h264,hevc,vp8,vp9,libvpx,libvpx-vp9,av1,libdav1d,libaom-av1,mpeg4,mjpeg,gif";
/// ffprobe ends with an error where it may not open a stream's decoder, though none is used.
constexpr std::string_view kOtherDecoders =
    ",aac,mp3float,mp3,opus,libopus,vorbis,ac3,eac3,flac,alac,amrnb,amrwb,pcm_s16le,pcm_s16be,"
    "pcm_s24le,pcm_f32le,pcm_u8,pcm_mulaw,pcm_alaw,mov_text,subrip,ass,ssa,webvtt";
constexpr int64_t kProbeBytesMax = 1 << 20;

void add(Words& words, std::initializer_list<std::string_view> more) {
  words.insert(words.end(), more.begin(), more.end());
}

/// ffmpeg goes on where it can after this, and its exit status need not tell.
bool lacked_memory(const ToolEnd& end) {
  return end.complaint.find("Cannot allocate memory") != std::string::npos;
}

Error too_little_memory(const VideoLimits& limits) {
  return make_error(ErrorCode::no_memory, {"video",
                                           concat("enough memory to decode it, of at most ",
                                                  limits.memory_bytes_max >> 20, " MiB"),
                                           "too little", "send a smaller one or fewer at once"});
}

Error ended_badly(const ToolEnd& end, const VideoLimits& limits) {
  constexpr int kSignals = 128;
  if (lacked_memory(end)) return too_little_memory(limits);
  if (end.status == kSignals + SIGXCPU || end.status == kSignals + SIGKILL)
    return make_error(ErrorCode::invalid_argument,
                      {"video",
                       concat("decoding within ", limits.cpu_seconds_max,
                              " s of processor time and ", limits.memory_bytes_max >> 20, " MiB"),
                       "one that needs more", "send a shorter or a smaller one"});
  std::string words = last_words(end.complaint);
  if (words.starts_with(kInput)) words.erase(0, kInput.size() + 2);  // ": "
  return make_error(ErrorCode::corrupt,
                    {"video", "a file that ffmpeg can read",
                     words.empty() ? concat("exit status ", end.status) : words, "check the file"});
}

std::string select_filter(std::span<const int64_t> frames) {
  std::string filter = "select=";
  for (const int64_t frame : frames)
    filter += concat(filter.back() == '=' ? "" : "+", "eq(n\\,", frame, ")");
  return filter;
}

}  // namespace

struct VideoDecoder::Input {
  Descriptor file;
  std::string demuxer;
  const std::function<bool()>& cancelled;

  static Result<Input> of(std::span<const std::byte> bytes, const VideoLimits& limits,
                          const std::function<bool()>& cancelled) {
    if (bytes.size() > limits.encoded_bytes_max)
      return make_error(ErrorCode::invalid_argument,
                        {"video", concat("at most ", limits.encoded_bytes_max, " bytes"),
                         concat(bytes.size()), "send a shorter or a smaller one"});
    const VideoFormat format = TRY(sniff_video_format(bytes));
    return Input{TRY(sealed_memory_file(bytes)), video_demuxer(format), cancelled};
  }

  /// Options before the input, of both programs: this demuxer, these decoders, this file alone.
  Words options(const VideoLimits& limits, std::string_view decoders) const {
    Words words = {"-v",   "repeat+error",      "-protocol_whitelist",
                   "file", "-format_whitelist", demuxer};
    add(words, {"-codec_whitelist", decoders, "-max_pixels", concat(limits.pixels_max)});
    if (demuxer == "mov") add(words, {"-enable_drefs", "0", "-use_absolute_path", "0"});
    add(words, {"-f", demuxer});
    return words;
  }
};

Result<VideoFacts> VideoDecoder::count(const Input& input, const char* how) const {
  Words words = {programs_.ffprobe()};
  const Words options = input.options(limits_, concat(kDecoders, kOtherDecoders));
  words.insert(words.end(), options.begin(), options.end());
  add(words, {how, "-select_streams", "V:0", "-show_entries", kProbeEntries, "-of", "json"});
  add(words, {kInput});
  std::string json;
  const ToolSink keep = [&](std::span<const std::byte> data) -> Result<void> {
    json.append(reinterpret_cast<const char*>(data.data()), data.size());
    return {};
  };
  const ToolLimits limits{.wall_ms_max = limits_.decode_ms_max, .output_bytes_max = kProbeBytesMax};
  const ToolEnd end = TRY(programs_.run(words, input.file.number(), limits, keep, input.cancelled));
  if (end.status != 0) return ended_badly(end, limits_);
  return parse_probe(json, limits_);
}

Result<VideoFacts> VideoDecoder::probe(std::span<const std::byte> bytes,
                                       const std::function<bool()>& cancelled) const try {
  return count(TRY(Input::of(bytes, limits_, cancelled)), "-count_packets");
} catch (const std::bad_alloc&) {
  return too_little_memory(limits_);
}

/// Fewer frames than were asked for are possible; then there are no patches.
Result<std::vector<ImagePatches>> VideoDecoder::decode(const Input& input,
                                                       const VideoOutline& outline,
                                                       const VideoProcessor& processor) const {
  const int64_t wanted = std::ssize(outline.frames);
  Words words = {programs_.ffmpeg(), "-nostdin", "-threads", "2"};
  const Words options = input.options(limits_, kDecoders);
  words.insert(words.end(), options.begin(), options.end());
  add(words, {"-i", kInput, "-map", "0:V:0", "-an", "-sn", "-dn", "-vf",
              select_filter(outline.frames), "-fps_mode", "passthrough", "-f", "image2pipe", "-c:v",
              "ppm", "-pix_fmt", "rgb24", "pipe:1"});
  std::optional<VideoCutter> cutter;
  PpmStream frames(limits_.pixels_max, [&](const RgbImage& frame) -> Result<void> {
    if (!cutter) {
      const ImageSize size{frame.width, frame.height};
      if (TRY(video_grid(size, wanted, processor)) != outline.grid)
        return make_error(ErrorCode::corrupt, {"video", "frames of the size that the file says",
                                               "another size", "encode it again"});
      cutter = TRY(VideoCutter::begin(size, wanted, processor));
    }
    return cutter->add(frame);
  });
  const ToolLimits limits{.wall_ms_max = limits_.decode_ms_max,
                          .output_bytes_max = wanted * (3 * limits_.pixels_max + 32)};
  const ToolEnd end = TRY(programs_.run(
      words, input.file.number(), limits,
      [&](std::span<const std::byte> data) { return frames.add(data); }, input.cancelled));
  if (end.status != 0) return ended_badly(end, limits_);
  TRY(frames.finish());
  if (cutter && cutter->taken() == wanted) return std::move(*cutter).finish();
  if (lacked_memory(end)) return too_little_memory(limits_);
  return std::vector<ImagePatches>();
}

/// Packets are counted quickly; some are no frames (edit lists, VP8's hidden ones), and then the
/// frames are counted by decoding.
Result<PreparedVideo> VideoDecoder::prepare(std::span<const std::byte> bytes,
                                            const VideoProcessor& processor,
                                            const VideoJudge& judge,
                                            const std::function<bool()>& cancelled) const try {
  const Input input = TRY(Input::of(bytes, limits_, cancelled));
  for (const char* how : {"-count_packets", "-count_frames"}) {
    const VideoFacts facts = TRY(count(input, how));
    PreparedVideo video{.outline =
                            TRY(outline_video(facts.size, facts.frames, facts.fps, processor))};
    if (const int64_t taken = std::ssize(video.outline.frames); taken > limits_.frames_max)
      return make_error(ErrorCode::invalid_argument,
                        {"video", concat("at most ", limits_.frames_max, " frames taken"),
                         concat(taken), "ask for a lower fps or fewer frames"});
    if (judge) TRY(judge(video.outline));
    video.patches = TRY(decode(input, video.outline, processor));
    if (!video.patches.empty()) return video;
  }
  return make_error(ErrorCode::corrupt, {"video", "as many frames as the file counts", "fewer",
                                         "check the file, or encode it again"});
} catch (const std::bad_alloc&) {
  return too_little_memory(limits_);
}

}  // namespace nibble
