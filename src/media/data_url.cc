// No error repeats a text: it may be 20 MiB of somebody's picture.
#include "media/data_url.h"

#include <array>
#include <cstdint>
#include <string>

namespace nibble {
namespace {

constexpr uint8_t kNoDigit = 0xFF;

constexpr std::array<uint8_t, 256> base64_digits() {
  std::array<uint8_t, 256> digits;
  digits.fill(kNoDigit);
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < kAlphabet.size(); ++i)
    digits[static_cast<uint8_t>(kAlphabet[i])] = static_cast<uint8_t>(i);
  return digits;
}

constexpr std::array<uint8_t, 256> kDigits = base64_digits();

uint8_t digit(char c) { return kDigits[static_cast<uint8_t>(c)]; }

Error wrong_character(std::string_view text, size_t from) {
  while (from < text.size() && digit(text[from]) != kNoDigit) ++from;
  return make_error(ErrorCode::invalid_argument,
                    {"base64", "A-Z, a-z, 0-9, + and /, with = at the end only",
                     concat("another character at position ", from),
                     "encode the file again, without line breaks"});
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

}  // namespace

Result<std::vector<std::byte>> decode_base64(std::string_view text, size_t bytes_max) {
  if (text.size() % 4 != 0)
    return make_error(ErrorCode::invalid_argument,
                      {"base64", "a multiple of 4 characters, padded with =",
                       concat(text.size(), " characters"), "encode the file again, with padding"});
  size_t padding = 0;
  while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') ++padding;
  const size_t count = text.size() / 4 * 3 - padding;
  if (count > bytes_max)
    return make_error(ErrorCode::invalid_argument,
                      {"encoded image or video", concat("at most ", bytes_max, " bytes"),
                       concat(count), "send a smaller file"});
  std::vector<std::byte> bytes(count);
  size_t out = 0;
  for (size_t at = 0; at < text.size(); at += 4) {
    const bool last = at + 4 == text.size();
    const size_t wanted = last ? 4 - padding : 4;
    uint32_t group = 0;
    for (size_t i = 0; i < wanted; ++i) {
      const uint8_t value = digit(text[at + i]);
      if (value == kNoDigit) return wrong_character(text, at);
      group |= uint32_t{value} << (18 - 6 * i);
    }
    for (size_t i = 0; i + 1 < wanted; ++i)
      bytes[out++] = static_cast<std::byte>(group >> (16 - 8 * i));
  }
  return bytes;
}

bool is_data_url(std::string_view url) { return lower_case(url.substr(0, 5)) == "data:"; }

Result<std::vector<std::byte>> parse_data_url(std::string_view url, size_t bytes_max) {
  const Error shape = make_error(ErrorCode::invalid_argument,
                                 {"data URL", "data:image/png;base64,...", "another form",
                                  "put the file's bytes in base64 behind the comma"});
  if (!is_data_url(url)) return shape;
  const size_t comma = url.find(',');
  if (comma == url.npos || comma > 1024) return shape;
  const std::string_view head = url.substr(5, comma - 5);
  const size_t mark = head.rfind(';');
  if (mark == head.npos || lower_case(head.substr(mark + 1)) != "base64")
    return make_error(ErrorCode::unsupported, {"data URL", "base64", "another encoding",
                                               "write data:TYPE;base64, and the bytes in base64"});
  return decode_base64(url.substr(comma + 1), bytes_max);
}

}  // namespace nibble
