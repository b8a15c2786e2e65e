// Sizes of images after resizing, and the tokens that follow.
#include <gtest/gtest.h>

#include <algorithm>

#include "media/processor_request.h"

namespace nibble {
namespace {

/// The settings of published checkpoints of Qwen3.5.
ImageProcessor published() {
  ImageProcessor processor;
  processor.patch = 16;
  processor.min_pixels = 65536;
  processor.max_pixels = 16777216;
  return processor;
}

TEST(ImageSizes, RequestedBoundsAreNotRoundedUpBeyond) {
  const ImageProcessor lowered = with_pixels(published(), std::nullopt, 65536).value();
  ImageProcessor theirs = published();
  theirs.max_pixels = 65536;
  EXPECT_EQ(resized_size({100, 50}, theirs).value(), (ImageSize{384, 192}));  // transformers
  EXPECT_EQ(resized_size({100, 50}, lowered).value(), (ImageSize{352, 160}));
  for (const int area : {1024, 5000, 65536}) {
    const ImageProcessor p = with_pixels(published(), area, area).value();
    for (int width = 1; width <= 300; width += 7)
      for (int height = 1; height <= 300; height += 7) {
        const auto size = resized_size({width, height}, p);
        if (!size.ok()) continue;
        const ImageSize s = size.value();
        EXPECT_TRUE(s.width * s.height <= area || std::min(s.width, s.height) == 32)
            << width << " x " << height << " became " << s.width << " x " << s.height;
      }
  }
}

TEST(ImageSizes, BoundsFarApartAreTransformers) {
  const ImageProcessor p = with_pixels(published(), 65536, 1 << 20).value();
  ImageProcessor theirs = published();
  theirs.max_pixels = 1 << 20;
  for (int width = 1; width <= 2000; width += 37)
    for (int height = 1; height <= 2000; height += 41) {
      const auto size = resized_size({width, height}, p);
      if (!size.ok()) continue;
      EXPECT_EQ(size.value(), resized_size({width, height}, theirs).value());
    }
}

TEST(ImageSizes, ExamplesOfTheModel) {
  struct Case {
    ImageSize from, to;
    int64_t tokens;
  };
  for (const Case& c : {Case{{1920, 1080}, {1920, 1088}, 2040}, Case{{1024, 768}, {1024, 768}, 768},
                        Case{{1280, 720}, {1280, 704}, 880}, Case{{100, 100}, {256, 256}, 64},
                        Case{{7000, 5000}, {4832, 3456}, 16308}, Case{{1, 1}, {256, 256}, 64},
                        Case{{1, 200}, {32, 3648}, 114}, Case{{16, 16}, {256, 256}, 64}}) {
    const auto size = resized_size(c.from, published());
    ASSERT_TRUE(size.ok()) << c.from.width << " x " << c.from.height;
    EXPECT_EQ(size.value(), c.to) << c.from.width << " x " << c.from.height << " became "
                                  << size.value().width << " x " << size.value().height;
    EXPECT_EQ(published().tokens(grid_of(c.from, published()).value()), c.tokens);
  }
  EXPECT_EQ(grid_of({1920, 1080}, published()).value(), (ImageGrid{1, 68, 120}));
}

TEST(ImageSizes, AspectRatioHasItsLimit) {
  EXPECT_TRUE(resized_size({199 * 7, 7}, published()).ok());
  EXPECT_TRUE(resized_size({7, 200 * 7}, published()).ok());
  const auto thin = resized_size({200 * 7 + 1, 7}, published());
  ASSERT_FALSE(thin.ok());
  EXPECT_EQ(
      thin.error().message,
      "image: expected a longer edge of at most 200 shorter ones, found 1401 x 7 pixels; crop "
      "it");
  EXPECT_FALSE(resized_size({10'000, 1}, published()).ok());
  EXPECT_FALSE(resized_size({0, 5}, published()).ok());
  EXPECT_FALSE(resized_size({5, -5}, published()).ok());
}

}  // namespace
}  // namespace nibble
