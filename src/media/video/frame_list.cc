// Headers first, then pixels: frames of several sizes are refused before any is decoded.
#include "media/video/frame_list.h"

#include <chrono>
#include <new>

namespace nibble {
namespace {

using Clock = std::chrono::steady_clock;

Error of_frame(size_t index, const Error& error) {
  return {error.code, concat("frame ", index + 1, ": ", error.message)};
}

/// The size that all of them have.
Result<ImageSize> size_of(std::span<const std::vector<std::byte>> files,
                          const ImageLimits& limits) {
  ImageSize all;
  for (size_t i = 0; i < files.size(); ++i) {
    const auto size = read_image_size(files[i], limits);
    if (!size.ok()) return of_frame(i, size.error());
    if (i == 0) all = size.value();
    if (size.value() != all)
      return make_error(
          ErrorCode::invalid_argument,
          {concat("frame ", i + 1), concat(all.width, " x ", all.height, " pixels, as frame 1"),
           concat(size.value().width, " x ", size.value().height), "send frames of one size"});
  }
  return all;
}

}  // namespace

Result<PreparedVideo> prepare_frames(std::span<const std::vector<std::byte>> files,
                                     const FrameListLimits& limits, const VideoProcessor& processor,
                                     const VideoJudge& judge,
                                     const std::function<bool()>& cancelled) try {
  const auto until = Clock::now() + std::chrono::milliseconds(limits.whole.decode_ms_max);
  const ImageSize size = TRY(size_of(files, limits.each));
  PreparedVideo video{.outline = TRY(outline_frames(size, std::ssize(files), processor))};
  if (judge) TRY(judge(video.outline));
  VideoCutter cutter = TRY(VideoCutter::begin(size, std::ssize(files), processor));
  for (size_t i = 0; i < files.size(); ++i) {
    if (cancelled && cancelled())
      return make_error(ErrorCode::cancelled, {.what = "video: the client has left"});
    if (Clock::now() >= until)
      return make_error(ErrorCode::invalid_argument,
                        {"video", concat("decoding within ", limits.whole.decode_ms_max, " ms"),
                         "one that takes longer", "send fewer or smaller frames"});
    const auto frame = decode_image(files[i], limits.each);
    if (!frame.ok()) return of_frame(i, frame.error());
    TRY(cutter.add(frame.value()));
  }
  video.patches = TRY(std::move(cutter).finish());
  return video;
} catch (const std::bad_alloc&) {
  return make_error(ErrorCode::no_memory,
                    {.what = "the frames of a video", .expected = "enough memory"});
}

}  // namespace nibble
