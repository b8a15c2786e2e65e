// For tests: PNG files put together by hand, as wrong as a test wants them.
#pragma once

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/check.h"
#include "media/testing/test_bytes.h"

namespace nibble {

inline std::string big_endian(uint32_t value) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) text.push_back(static_cast<char>(value >> shift));
  return text;
}

inline std::string png_chunk(const std::string& type, const std::string& data) {
  const std::string body = type + data;
  const auto sum = crc32_z(0, reinterpret_cast<const Bytef*>(body.data()), body.size());
  return big_endian(static_cast<uint32_t>(data.size())) + body +
         big_endian(static_cast<uint32_t>(sum));
}

inline std::string deflated(const std::string& raw) {
  std::string packed(compressBound(raw.size()), '\0');
  uLongf size = packed.size();
  CHECK(compress2(reinterpret_cast<Bytef*>(packed.data()), &size,
                  reinterpret_cast<const Bytef*>(raw.data()), raw.size(), 1) == Z_OK);
  packed.resize(size);
  return packed;
}

/// A PNG file of grey pixels with a header of its own; `rows` rows are there.
inline std::string grey_png(uint32_t width, uint32_t height, uint32_t rows) {
  using std::string_literals::operator""s;
  const std::string packed = deflated(std::string((size_t{width} + 1) * rows, '\0'));
  return "\x89PNG\r\n\x1A\n" +
         png_chunk("IHDR", big_endian(width) + big_endian(height) + "\x08\0\0\0\0"s) +
         png_chunk("IDAT", packed) + png_chunk("IEND", "");
}

}  // namespace nibble
