// The layout of chunks: length, type, data, CRC-32 of type and data (PNG specification, 5.3).
#include "media/formats/png_chunks.h"

#include <zlib.h>

#include <algorithm>
#include <initializer_list>
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

class TextReader {
 public:
  void read(std::string_view type, std::string_view data) {
    if (type == "eXIf") texts_.exif = data;
    if (type == "tEXt") read_text(data);
    if (type == "zTXt") read_packed_text(data);
    if (type == "iTXt") read_international_text(data);
  }
  PngTexts take() { return std::move(texts_); }

 private:
  void read_text(std::string_view data) {
    std::string_view key;
    if (!take_word(data, key)) return;
    if (key == "exif") texts_.exif = data;
    if (key == kRawProfile) texts_.raw_profile = data;
  }

  void read_packed_text(std::string_view data) {
    std::string_view key;
    if (!take_word(data, key) || key != kRawProfile || data.empty() || data[0] != 0) return;
    if (auto text = unpacked(data.substr(1))) texts_.raw_profile = std::move(*text);
  }

  void read_international_text(std::string_view data) {
    std::string_view key, language, translated;
    if (!take_word(data, key) || data.size() < 2) return;
    if (key != kXmp && key != kRawProfile) return;
    const bool packed = data[0] != 0, deflate = data[1] == 0;
    data.remove_prefix(2);
    if (!take_word(data, language) || !take_word(data, translated) || (packed && !deflate)) return;
    std::optional<std::string> text = packed ? unpacked(data) : std::string(data);
    if (text) (key == kXmp ? texts_.xmp : texts_.raw_profile) = std::move(*text);
  }

  std::optional<std::string> unpacked(std::string_view text) {
    if (packed_texts_ == kPackedTextsMax) return std::nullopt;
    ++packed_texts_;
    return inflated(text);
  }

  PngTexts texts_;
  int packed_texts_ = 0;
};

/// Calls use(type, data) for each chunk of these types whose sum is right.
template <typename Use>
Result<void> walk_chunks(ImageBytes bytes, std::initializer_list<std::string_view> types,
                         const DecodeClock& clock, const Use& use) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  size_t at = 8;
  while (at + 12 <= text.size()) {
    if (clock.expired()) return clock.error();
    const size_t length = big_endian(text, at);
    const std::string_view type = text.substr(at + 4, 4);
    if (type == "IEND" || length > text.size() - at - 12) break;
    if (length <= kTextMax && std::find(types.begin(), types.end(), type) != types.end()) {
      const auto* start = reinterpret_cast<const Bytef*>(text.data() + at + 4);
      const uint32_t sum = static_cast<uint32_t>(crc32_z(0, start, length + 4));
      if (sum == big_endian(text, at + 8 + length)) use(type, text.substr(at + 8, length));
    }
    at += length + 12;
  }
  return {};
}

}  // namespace

Result<PngTexts> read_png_texts(ImageBytes bytes, const DecodeClock& clock) {
  TextReader reader;
  TRY(walk_chunks(bytes, {"eXIf", "tEXt", "zTXt", "iTXt"}, clock,
                  [&](std::string_view type, std::string_view data) { reader.read(type, data); }));
  return reader.take();
}

Result<std::string_view> read_png_transparency(ImageBytes bytes, const DecodeClock& clock) {
  std::string_view found;
  TRY(walk_chunks(bytes, {"tRNS"}, clock,
                  [&](std::string_view, std::string_view data) { found = data; }));
  return found;
}

}  // namespace nibble
