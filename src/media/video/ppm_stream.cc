// One state: a header that is not complete, or a frame that is not.
#include "media/video/ppm_stream.h"

#include <algorithm>
#include <charconv>
#include <string_view>

namespace nibble {
namespace {

constexpr size_t kHeaderMax = 32;  // "P6\n1234567 1234567\n255\n" is 23
constexpr int kHeaderLines = 3;
constexpr int kEdgeMax = 1 << 20;

Error not_a_frame(std::string_view found) {
  return make_error(ErrorCode::corrupt, {"decoded video", "a PPM frame", found,
                                         "check that ffmpeg in PATH is the real one"});
}

bool read_edge(const char*& at, const char* end, char behind, int& edge) {
  const auto read = std::from_chars(at, end, edge);
  if (read.ec != std::errc() || read.ptr == end || *read.ptr != behind) return false;
  at = read.ptr + 1;
  return edge >= 1 && edge <= kEdgeMax;
}

}  // namespace

Result<void> PpmStream::begin_frame() {
  const std::string_view begin = "P6\n", end = "255\n";
  const char* at = header_.data() + begin.size();
  const char* const stop = header_.data() + header_.size();
  if (!header_.starts_with(begin) || !read_edge(at, stop, ' ', frame_.width) ||
      !read_edge(at, stop, '\n', frame_.height) || std::string_view(at, stop) != end)
    return not_a_frame("another header");
  const int64_t pixels = int64_t{frame_.width} * frame_.height;
  if (pixels > pixels_max_)
    return make_error(ErrorCode::invalid_argument,
                      {"video", concat("at most ", pixels_max_, " pixels a frame"),
                       concat(frame_.width, " x ", frame_.height), "send a smaller one"});
  bytes_ = static_cast<size_t>(3 * pixels);
  frame_.pixels.clear();
  frame_.pixels.reserve(bytes_);
  header_.clear();
  header_lines_ = 0;
  return {};
}

Result<void> PpmStream::add_to_header(char next) {
  if (header_.size() == kHeaderMax) return not_a_frame("a longer header");
  header_ += next;
  if (next == '\n') ++header_lines_;
  return header_lines_ == kHeaderLines ? begin_frame() : Result<void>();
}

Result<void> PpmStream::add(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (bytes_ == 0) {
      TRY(add_to_header(static_cast<char>(bytes[0])));
      bytes = bytes.subspan(1);
      continue;
    }
    const size_t count = std::min(bytes.size(), bytes_ - frame_.pixels.size());
    const auto* from = reinterpret_cast<const uint8_t*>(bytes.data());
    frame_.pixels.insert(frame_.pixels.end(), from, from + count);
    bytes = bytes.subspan(count);
    if (frame_.pixels.size() < bytes_) continue;
    bytes_ = 0;
    TRY(on_frame_(frame_));
  }
  return {};
}

Result<void> PpmStream::finish() const {
  if (bytes_ == 0 && header_.empty()) return {};
  return not_a_frame("an end within one");
}

}  // namespace nibble
