// The layout of chunks: length, type, data, CRC-32 of type and data (PNG specification, 5.3).
#include "media/png_chunks.h"

#include <zlib.h>

#include <optional>

namespace nibble {
namespace {

constexpr size_t kTextMax = 1 << 20;

uint32_t big_endian(std::string_view text, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(text[at + i]);
  return value;
}

std::optional<std::string> inflated(std::string_view text) {
  std::string out(kTextMax, '\0');
  uLongf size = out.size();
  const int status = uncompress(reinterpret_cast<Bytef*>(out.data()), &size,
                                reinterpret_cast<const Bytef*>(text.data()), text.size());
  if (status != Z_OK) return std::nullopt;
  out.resize(size);
  return out;
}

/// Splits off the part before the first zero byte; false if there is none.
bool take_word(std::string_view& text, std::string_view& word) {
  const size_t end = text.find('\0');
  if (end == text.npos) return false;
  word = text.substr(0, end);
  text.remove_prefix(end + 1);
  return true;
}

constexpr std::string_view kRawProfile = "Raw profile type exif";
constexpr std::string_view kXmp = "XML:com.adobe.xmp";

void read_text(std::string_view data, PngChunks& chunks) {
  std::string_view key;
  if (!take_word(data, key)) return;
  if (key == "exif") chunks.exif = data;
  if (key == kRawProfile) chunks.raw_profile = data;
}

void read_packed_text(std::string_view data, PngChunks& chunks) {
  std::string_view key;
  if (!take_word(data, key) || key != kRawProfile || data.empty() || data[0] != 0) return;
  if (auto text = inflated(data.substr(1))) chunks.raw_profile = std::move(*text);
}

void read_international_text(std::string_view data, PngChunks& chunks) {
  std::string_view key, language, translated;
  if (!take_word(data, key) || data.size() < 2) return;
  if (key != kXmp && key != kRawProfile) return;
  const bool packed = data[0] != 0, deflate = data[1] == 0;
  data.remove_prefix(2);
  if (!take_word(data, language) || !take_word(data, translated) || (packed && !deflate)) return;
  std::optional<std::string> text = packed ? inflated(data) : std::string(data);
  if (text) (key == kXmp ? chunks.xmp : chunks.raw_profile) = std::move(*text);
}

void read_chunk(std::string_view type, std::string_view data, PngChunks& chunks) {
  if (data.size() > kTextMax) return;
  if (type == "tRNS") chunks.transparency = data;
  if (type == "eXIf") chunks.exif = data;
  if (type == "tEXt") read_text(data, chunks);
  if (type == "zTXt") read_packed_text(data, chunks);
  if (type == "iTXt") read_international_text(data, chunks);
}

}  // namespace

PngChunks read_png_chunks(ImageBytes bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  PngChunks chunks;
  size_t at = 8;
  while (at + 12 <= text.size()) {
    const size_t length = big_endian(text, at);
    const std::string_view type = text.substr(at + 4, 4);
    if (type == "IEND" || length > text.size() - at - 12) break;
    if (type != "IDAT") {
      const auto* start = reinterpret_cast<const Bytef*>(text.data() + at + 4);
      const uint32_t sum = static_cast<uint32_t>(crc32_z(0, start, length + 4));
      if (sum == big_endian(text, at + 8 + length))
        read_chunk(type, text.substr(at + 8, length), chunks);
    }
    at += length + 12;
  }
  return chunks;
}

}  // namespace nibble
