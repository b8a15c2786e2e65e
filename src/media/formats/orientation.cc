// EXIF is a TIFF directory (TIFF 6.0, section 2); XMP is searched for one attribute.
#include "media/formats/orientation.h"

#include <cstring>
#include <optional>

#include "media/formats/png_chunks.h"
#include "media/formats/webp_demuxer.h"

namespace nibble {
namespace {

using std::string_view_literals::operator""sv;

constexpr int kOrientationTag = 274;
constexpr std::string_view kExifPrefix = "Exif\0\0"sv;

class TiffReader {
 public:
  explicit TiffReader(std::string_view text) : text_(text), big_(text.starts_with("MM")) {}
  bool has(size_t at, size_t count) const {
    return at <= text_.size() && count <= text_.size() - at;
  }
  uint32_t number(size_t at, int bytes) const {
    uint32_t value = 0;
    for (int i = 0; i < bytes; ++i)
      value |= uint32_t{static_cast<uint8_t>(text_[at + i])} << 8 * (big_ ? bytes - 1 - i : i);
    return value;
  }

 private:
  std::string_view text_;
  bool big_;
};

/// The bytes of one value of each type of TIFF 6.0; 0: no such type.
constexpr size_t kUnits[] = {0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8};

/// The value of one entry, of several the first; 0 for one that is no whole number. Empty if the
/// entry does not count: it is of no known type, has no values, or they are not there.
std::optional<uint32_t> entry_value(const TiffReader& tiff, size_t at) {
  const uint32_t type = tiff.number(at + 2, 2);
  const size_t unit = type < std::size(kUnits) ? kUnits[type] : 0;
  const size_t size = unit * tiff.number(at + 4, 4);
  const size_t where = size <= 4 ? at + 8 : tiff.number(at + 8, 4);
  if (size == 0 || !tiff.has(where, size)) return std::nullopt;
  const bool is_short = type == 3 || type == 8, is_long = type == 4 || type == 9;
  return is_short || is_long ? tiff.number(where, static_cast<int>(unit)) : 0;
}

/// The first tag 274 of the first directory.
std::optional<uint32_t> exif_orientation(std::string_view text) {
  for (int i = 0; i < 2 && text.starts_with(kExifPrefix); ++i)
    text.remove_prefix(kExifPrefix.size());
  if (!text.starts_with("II*\0"sv) && !text.starts_with("MM\0*"sv)) return std::nullopt;
  const TiffReader tiff(text);
  if (!tiff.has(4, 4)) return std::nullopt;
  const size_t start = tiff.number(4, 4);
  if (!tiff.has(start, 2)) return std::nullopt;
  const size_t end = start + 2 + size_t{12} * tiff.number(start, 2);
  for (size_t at = start + 2; at < end && tiff.has(at, 12); at += 12)
    if (tiff.number(at, 2) == kOrientationTag)
      if (const auto value = entry_value(tiff, at)) return value;
  return std::nullopt;
}

/// The digit of tiff:Orientation="N" or <tiff:Orientation>N.
std::optional<uint32_t> xmp_orientation(std::string_view text) {
  constexpr std::string_view kName = "tiff:Orientation";
  for (size_t at = text.find(kName); at != text.npos; at = text.find(kName, at + 1)) {
    std::string_view rest = text.substr(at + kName.size());
    if (rest.starts_with("=\""))
      rest.remove_prefix(2);
    else if (rest.starts_with(">"))
      rest.remove_prefix(1);
    else
      continue;
    if (!rest.empty() && rest[0] >= '0' && rest[0] <= '9')
      return static_cast<uint32_t>(rest[0] - '0');
  }
  return std::nullopt;
}

struct Metadata {
  std::string exif;
  std::string xmp;
};

/// ImageMagick's "Raw profile type exif": an empty line, the name, the length, lines of hexadecimal
/// digits.
std::string from_raw_profile(std::string_view text) {
  for (int line = 0; line < 3; ++line) {
    const size_t end = text.find('\n');
    if (end == text.npos) return {};
    text.remove_prefix(end + 1);
  }
  std::string bytes;
  int high = -1;
  for (const char c : text) {
    const size_t digit = "0123456789abcdef0123456789ABCDEF"sv.find(c);
    if (digit == std::string_view::npos) {
      if (" \n\r\t\v\f"sv.find(c) != std::string_view::npos) continue;
      return {};
    }
    const int value = static_cast<int>(digit % 16);
    if (high >= 0) bytes.push_back(static_cast<char>(high * 16 + value));
    high = high < 0 ? value : -1;
  }
  return bytes;
}

Result<Metadata> png_metadata(ImageBytes bytes, const DecodeClock& clock) {
  PngTexts texts = TRY(read_png_texts(bytes, clock));
  if (texts.exif.empty()) texts.exif = from_raw_profile(texts.raw_profile);
  return Metadata{std::move(texts.exif), std::move(texts.xmp)};
}

void read_app1(std::string_view data, Metadata& metadata) {
  constexpr std::string_view kXmpPrefix = "http://ns.adobe.com/xap/1.0/\0"sv;
  if (data.starts_with(kXmpPrefix)) metadata.xmp = data.substr(kXmpPrefix.size());
  if (!data.starts_with(kExifPrefix)) return;
  if (metadata.exif.empty())
    metadata.exif = data;
  else
    metadata.exif += data.substr(kExifPrefix.size());
}

/// The segments before the first scan.
Metadata jpeg_metadata(ImageBytes bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  Metadata metadata;
  for (size_t at = 2; at + 4 <= text.size();) {
    const auto code = static_cast<uint8_t>(text[at + 1]);
    if (text[at] != '\xFF' || code == 0xFF || code == 0) {
      ++at;
      continue;
    }
    if (code == 0xDA) break;
    if (code == 0x01 || (code >= 0xD0 && code <= 0xD9)) {
      at += 2;
      continue;
    }
    const size_t length =
        static_cast<uint8_t>(text[at + 2]) << 8 | static_cast<uint8_t>(text[at + 3]);
    if (length < 2 || length > text.size() - at - 2) break;
    if (code == 0xE1) read_app1(text.substr(at + 4, length - 2), metadata);
    at += 2 + length;
  }
  return metadata;
}

std::string webp_chunk(const WebPDemuxer* demuxer, const char* name) {
  WebPChunkIterator chunk;
  if (!WebPDemuxGetChunk(demuxer, name, 1, &chunk)) return {};
  std::string data(reinterpret_cast<const char*>(chunk.chunk.bytes), chunk.chunk.size);
  WebPDemuxReleaseChunkIterator(&chunk);
  return data;
}

Result<Metadata> webp_metadata(ImageBytes bytes) {
  const WebpDemuxer demuxer = TRY(open_webp(bytes));
  return Metadata{webp_chunk(demuxer.get(), "EXIF"), webp_chunk(demuxer.get(), "XMP ")};
}

Result<Metadata> metadata_of(ImageBytes bytes, ImageFormat format, const DecodeClock& clock) {
  switch (format) {
    case ImageFormat::jpeg:
      return jpeg_metadata(bytes);
    case ImageFormat::png:
      return png_metadata(bytes, clock);
    case ImageFormat::webp:
      return webp_metadata(bytes);
    case ImageFormat::gif:
      break;
  }
  return Metadata();
}

}  // namespace

Result<int> read_orientation(ImageBytes bytes, ImageFormat format, const DecodeClock& clock) {
  const Metadata metadata = TRY(metadata_of(bytes, format, clock));
  std::optional<uint32_t> found = exif_orientation(metadata.exif);
  if (!found) found = xmp_orientation(metadata.xmp);
  return found && *found >= 1 && *found <= 8 ? static_cast<int>(*found) : 1;
}

ImageSize oriented(const ImageSize& size, int orientation) {
  if (orientation < 5) return size;
  return {.width = size.height, .height = size.width};
}

RgbImage oriented(RgbImage image, int orientation) {
  if (orientation == 1) return image;
  const bool diagonal = orientation >= 5;
  const bool from_right =
      orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool from_below =
      orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  RgbImage turned = make_image(oriented(ImageSize{image.width, image.height}, orientation));
  uint8_t* out = turned.pixels.data();
  for (int y = 0; y < turned.height; ++y)
    for (int x = 0; x < turned.width; ++x, out += 3) {
      const int along_width = diagonal ? y : x, along_height = diagonal ? x : y;
      const int from_x = from_right ? image.width - 1 - along_width : along_width;
      const int from_y = from_below ? image.height - 1 - along_height : along_height;
      std::memcpy(out, &image.pixels[(size_t{3} * image.width) * from_y + size_t{3} * from_x], 3);
    }
  return turned;
}

}  // namespace nibble
