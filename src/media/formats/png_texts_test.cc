// Texts of PNG files, which hold the orientation: bounded in count and time.
#include <gtest/gtest.h>

#include <ctime>

#include "media/formats/png_chunks.h"
#include "media/image_decoder.h"
#include "media/testing/test_png.h"

namespace nibble {
namespace {

using std::string_literals::operator""s;

std::string raw_profile_text(const std::string& text) {
  return png_chunk("zTXt", "Raw profile type exif\0\0"s + deflated(text));
}

TEST(PngTexts, HaveALimitOfCount) {
  const std::string upright = "\nexif\n26\n4d4d002a000000080001011200030000000100010000000000";
  const std::string turned = "\nexif\n26\n4d4d002a000000080001011200030000000100060000000000";
  for (const int before : {kPackedTextsMax - 1, kPackedTextsMax}) {
    std::string texts;
    for (int i = 0; i < before; ++i) texts += raw_profile_text(upright);
    std::string file = grey_png(9, 8, 8);
    file.insert(33, texts + raw_profile_text(turned));
    const bool counts = before < kPackedTextsMax;
    EXPECT_EQ(read_image_size(bytes_of(file), {}).value(),
              (counts ? ImageSize{8, 9} : ImageSize{9, 8}))
        << before;
  }
}

/// An image with as many texts of 1 MiB each as fit into so many bytes.
std::string many_texts(size_t bytes) {
  const std::string text = raw_profile_text(std::string(size_t{1} << 20, 'x'));
  std::string texts;
  while (texts.size() + text.size() <= bytes) texts += text;
  std::string file = grey_png(8, 8, 8);
  file.insert(33, texts);
  return file;
}

TEST(PngTexts, ThousandsCostLittle) {
  const std::string file = many_texts(19 << 20);
  const std::clock_t begin = std::clock();
  EXPECT_TRUE(read_image_size(bytes_of(file), {}).ok());
  EXPECT_TRUE(decode_image(bytes_of(file), {}).ok());
  EXPECT_LT(std::clock() - begin, CLOCKS_PER_SEC);
}

TEST(PngTexts, TimeIsLookedAtBetweenChunks) {
  std::string file = grey_png(8, 8, 8), chunks;
  for (int i = 0; i < 10'000; ++i) chunks += png_chunk("tEXt", "a");
  file.insert(33, chunks);
  const auto size = read_image_size(bytes_of(file), {.decode_ms_max = 0});
  ASSERT_FALSE(size.ok());
  EXPECT_TRUE(size.error().message.starts_with("image: expected one that is decoded within 0 ms"));
  const DecodeClock late(0), early(10'000);
  EXPECT_FALSE(read_png_texts(bytes_of(file), late).ok());
  EXPECT_FALSE(read_png_transparency(bytes_of(file), late).ok());
  EXPECT_TRUE(read_png_texts(bytes_of(file), early).ok());
  EXPECT_TRUE(read_png_transparency(bytes_of(file), early).ok());
}

}  // namespace
}  // namespace nibble
