// Signatures as the formats' own specifications give them.
#include "media/image_format.h"

#include <string_view>

namespace nibble {
namespace {

using std::string_view_literals::operator""sv;

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Formats that people send and that are not taken, by their first bytes; empty if unknown.
std::string_view other_format(std::string_view text) {
  struct Known {
    std::string_view prefix;
    std::string_view name;
  };
  static constexpr Known kKnown[] = {
      {"BM"sv, "BMP"},
      {"II*\0"sv, "TIFF"},
      {"MM\0*"sv, "TIFF"},
      {"%PDF-"sv, "PDF"},
      {"\0\0\1\0"sv, "ICO"},
      {"\0\0\0\x0CjP  "sv, "JPEG 2000"},
      {"\xFF\x4F\xFF\x51"sv, "JPEG 2000"},
      {"\0\0\0\x0CJXL "sv, "JPEG XL"},
      {"\xFF\x0A"sv, "JPEG XL"},
      {"8BPS"sv, "PSD"},
  };
  for (const Known& known : kKnown)
    if (text.starts_with(known.prefix)) return known.name;
  if (text.size() >= 12 && text.substr(4, 4) == "ftyp") {
    const std::string_view brand = text.substr(8, 4);
    if (brand == "avif" || brand == "avis") return "AVIF";
    if (brand.starts_with("he") || brand == "mif1" || brand == "msf1") return "HEIC";
    return "a video";
  }
  std::string_view start = text.substr(0, 1024);
  if (start.starts_with("\xEF\xBB\xBF")) start.remove_prefix(3);
  start.remove_prefix(std::min(start.size(), start.find_first_not_of(" \t\r\n")));
  const bool markup = start.starts_with("<?xml") || start.starts_with("<!");
  if (start.starts_with("<svg") || (markup && start.find("<svg") != start.npos)) return "SVG";
  return {};
}

}  // namespace

Result<ImageFormat> sniff_image_format(std::span<const std::byte> bytes) {
  const std::string_view text = text_of(bytes);
  if (text.empty())
    return make_error(ErrorCode::invalid_argument,
                      {"image", "JPEG, PNG, WebP or GIF", "no bytes", "send the file's bytes"});
  if (text.starts_with("\xFF\xD8\xFF")) return ImageFormat::jpeg;
  if (text.starts_with("\x89PNG\r\n\x1A\n")) return ImageFormat::png;
  if (text.starts_with("GIF87a") || text.starts_with("GIF89a")) return ImageFormat::gif;
  if (text.starts_with("RIFF") && text.size() >= 15 && text.substr(8, 7) == "WEBPVP8")
    return ImageFormat::webp;
  std::string_view other = other_format(text);
  if (other.empty()) other = "another format";
  return make_error(ErrorCode::unsupported, {"image", "JPEG, PNG, WebP or GIF", other,
                                             "convert it to one of these formats"});
}

}  // namespace nibble
