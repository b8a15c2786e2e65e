// The first bytes of containers, taken and others.
#include "media/video/video_format.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace nibble {
namespace {

struct Magic {
  size_t at;
  std::string_view bytes;
  const char* name;
};

using std::string_view_literals::operator""sv;

/// Known, and not taken.
constexpr std::array kOthers = {
    Magic{0, "#EXTM3U"sv, "a playlist (HLS)"},
    Magic{0, "ffconcat"sv, "a list of files (ffconcat)"},
    Magic{0, "<?xml"sv, "an XML file"},
    Magic{0, "<MPD"sv, "a playlist (DASH)"},
    Magic{0, "OggS"sv, "Ogg"},
    Magic{0, "FLV\x01"sv, "FLV"},
    Magic{0, "\x30\x26\xB2\x75"sv, "ASF or WMV"},
    Magic{0, "\0\0\x01\xBA"sv, "MPEG-PS"},
    Magic{0, "\0\0\x01\xB3"sv, "MPEG-1 or MPEG-2 video"},
    Magic{0, "\xFF\xD8\xFF"sv, "a JPEG image"},
    Magic{0, "\x89PNG"sv, "a PNG image"},
    Magic{8, "WEBP"sv, "a WebP image"},
    Magic{8, "WAVE"sv, "a WAV sound"},
    Magic{0, "ID3"sv, "an MP3 sound"},
    Magic{0, "fLaC"sv, "a FLAC sound"},
};

constexpr std::array kStillBrands = {"avif"sv, "heic"sv, "heix"sv, "mif1"sv, "msf1"sv};
constexpr std::array kMovBoxes = {"ftyp"sv, "moov"sv, "mdat"sv, "wide"sv, "free"sv, "skip"sv};

Error not_taken(ErrorCode code, std::string_view found) {
  return make_error(code, {"video", "MP4, MOV, WebM, Matroska, AVI or GIF", found,
                           "convert it, or send its frames as images"});
}

}  // namespace

const char* video_demuxer(VideoFormat format) {
  switch (format) {
    case VideoFormat::mov:
      return "mov";
    case VideoFormat::matroska:
      return "matroska";
    case VideoFormat::avi:
      return "avi";
    case VideoFormat::gif:
      return "gif";
  }
  CHECK(false, static_cast<int>(format));
}

Result<VideoFormat> sniff_video_format(std::span<const std::byte> bytes) {
  if (bytes.empty()) return not_taken(ErrorCode::invalid_argument, "no bytes");
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()),
                              std::min<size_t>(bytes.size(), 32));
  const auto holds = [&](size_t at, std::string_view magic) {
    return text.size() >= at && text.substr(at, magic.size()) == magic;
  };
  const auto box = text.size() >= 8 ? text.substr(4, 4) : std::string_view();
  if (box == "ftyp" && text.size() >= 12 &&
      std::ranges::find(kStillBrands, text.substr(8, 4)) != kStillBrands.end())
    return not_taken(ErrorCode::unsupported, "an AVIF or HEIC image");
  if (std::ranges::find(kMovBoxes, box) != kMovBoxes.end()) return VideoFormat::mov;
  if (holds(0, "\x1A\x45\xDF\xA3")) return VideoFormat::matroska;
  if (holds(0, "RIFF") && holds(8, "AVI ")) return VideoFormat::avi;
  if (holds(0, "GIF87a") || holds(0, "GIF89a")) return VideoFormat::gif;
  for (const Magic& other : kOthers)
    if (holds(other.at, other.bytes)) return not_taken(ErrorCode::unsupported, other.name);
  return not_taken(ErrorCode::unsupported, "another format");
}

}  // namespace nibble
