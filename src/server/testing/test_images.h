// Tests have here PNG files of any size, as data: URLs, and the model of test_model.h with a reader
// of images and the chat template of the family.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/file.h"
#include "server/testing/test_model.h"
#include "testing/source_dir.h"

namespace nibble::testing {

/// Big-endian, as PNG has numbers.
inline std::string number4(uint32_t value) {
  std::string out;
  for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<char>(value >> shift));
  return out;
}

/// ISO 3309's CRC, as PNG has it.
inline uint32_t png_crc(std::string_view bytes) {
  uint32_t crc = ~0U;
  for (const char byte : bytes) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320U : 0U);
  }
  return ~crc;
}

inline std::string png_chunk(std::string_view type, std::string_view data) {
  const std::string named = std::string(type) + std::string(data);
  return number4(static_cast<uint32_t>(data.size())) + named + number4(png_crc(named));
}

/// A PNG of one shade of grey with 8 bits a pixel, in stored blocks: as large as its pixels.
inline std::string png(uint32_t width, uint32_t height, uint8_t shade = 128) {
  std::string rows;
  for (uint32_t y = 0; y < height; ++y) rows += '\0' + std::string(width, static_cast<char>(shade));
  std::string stream = "\x78\x01";
  constexpr size_t kBlock = 0xFFFF;
  for (size_t at = 0; at == 0 || at < rows.size(); at += kBlock) {
    const std::string block = rows.substr(at, kBlock);
    const auto size = static_cast<uint16_t>(block.size());
    stream.push_back(at + kBlock >= rows.size() ? '\1' : '\0');
    for (const uint16_t half : {size, static_cast<uint16_t>(~size)}) {
      stream.push_back(static_cast<char>(half & 0xFF));
      stream.push_back(static_cast<char>(half >> 8));
    }
    stream += block;
  }
  uint32_t a = 1, b = 0;
  for (const char byte : rows) {
    a = (a + static_cast<uint8_t>(byte)) % 65521;
    b = (b + a) % 65521;
  }
  stream += number4(b << 16 | a);
  const std::string header = number4(width) + number4(height) + std::string("\x08\0\0\0\0", 5);
  return "\x89PNG\r\n\x1a\n" + png_chunk("IHDR", header) + png_chunk("IDAT", stream) +
         png_chunk("IEND", "");
}

/// Base64, in the obvious way.
inline std::string base64_of(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  uint32_t held = 0;
  int bits = 0;
  for (const char byte : bytes) {
    held = held << 8 | static_cast<uint8_t>(byte);
    for (bits += 8; bits >= 6; bits -= 6) out.push_back(kDigits[held >> (bits - 6) & 63]);
  }
  if (bits > 0) out.push_back(kDigits[held << (6 - bits) & 63]);
  while (out.size() % 4 != 0) out.push_back('=');
  return out;
}
inline std::string data_url(std::string_view bytes) {
  return "data:image/png;base64," + base64_of(bytes);
}
/// A part of a chat.
inline std::string image_part(const std::string& url) {
  return concat(R"({"type":"image_url","image_url":{"url":")", url, R"("}})");
}

/// A part of a chat: a video of PNG frames in these shades, all of one size.
inline std::string frames_part(uint32_t width, uint32_t height,
                               std::initializer_list<uint8_t> shades) {
  std::string frames;
  for (const uint8_t shade : shades)
    frames += concat(frames.empty() ? "" : ",", "\"", data_url(png(width, height, shade)), "\"");
  return concat(R"({"type":"video","video":[)", frames, "]}");
}

/// Tokens of 32 x 32 pixels, and images of at least one. Two videos of at most 8 frames; files are
/// not decoded.
inline ImageIntakeOptions image_options() {
  ImageIntakeOptions options;
  options.processor.patch = 16;
  options.processor.min_pixels = 32 * 32;
  options.processor.max_pixels = 1 << 20;
  options.image_token = kImagePad;
  options.video_token = kVideoPad;
  options.videos.videos_max = 2;
  options.videos.processor.frame = options.processor;
  options.videos.processor.max_frames = 8;
  options.videos.decoder = Error{ErrorCode::unsupported, "video: ffmpeg is missing"};
  return options;
}

inline ServedModel model_with_images(const ImageIntakeOptions& options = image_options()) {
  ServedModel model = served_model();
  const auto source =
      read_text_file(NIBBLE_SOURCE_DIR "/tests/golden/templates/qwen3.6.jinja", 1 << 20);
  CHECK(source.ok(), source.error().message);
  model.chat_template = ChatTemplate::compile(source.value(), "qwen3.6").value();
  model.images = std::make_shared<const ImageIntake>(options);
  model.context_max = 4096;
  return model;
}

}  // namespace nibble::testing
