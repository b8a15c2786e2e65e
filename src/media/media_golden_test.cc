// Files of every kind against tests/golden/media/cases.json: the pixels are Pillow's, the patches
// those of transformers' image processor. tools/oracle/media_golden.py wrote them.
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdio>
#include <cstring>

#include "base/file.h"
#include "media/bicubic_resize.h"
#include "media/image_patches.h"
#include "media/testing/test_bytes.h"
#include "testing/source_dir.h"

namespace nibble {
namespace {

std::string read(const std::string& path) {
  return read_text_file(std::string(NIBBLE_SOURCE_DIR) + "/" + path, 1 << 20).value();
}

template <typename T>
int64_t sum_of(const std::vector<T>& values) {
  return static_cast<int64_t>(
      crc32_z(0, reinterpret_cast<const Bytef*>(values.data()), values.size() * sizeof(T)));
}

std::vector<float> rows_of(const ImagePatches& patches) {
  const size_t plane = size_t{1} * patches.temporal * patches.patch * patches.patch;
  std::vector<float> rows(patches.levels.size());
  for (size_t i = 0; i < rows.size(); ++i)
    rows[i] = patches.values[i / plane % 3][patches.levels[i]];
  return rows;
}

TEST(MediaGoldens, PixelsArePillowsAndPatchesAreTransformers) {
  const Json cases = parse_json(read("tests/golden/media/cases.json"), "cases").value();
  ASSERT_GE(cases.as_array().size(), 70U);
  for (const Json& c : cases.as_array()) {
    const std::string name = c.find("file")->as_string();
    const std::string file = read("tests/corpus/image_fuzz/" + name);
    const auto image = decode_image(bytes_of(file), ImageLimits{});
    ASSERT_TRUE(image.ok()) << name << ": " << image.error().message;
    EXPECT_EQ(image.value().width, c.find("width")->as_int()) << name;
    EXPECT_EQ(image.value().height, c.find("height")->as_int()) << name;
    EXPECT_EQ(sum_of(image.value().pixels), c.find("pixels")->as_int()) << name;
    const auto size = read_image_size(bytes_of(file), ImageLimits{});
    ASSERT_TRUE(size.ok()) << name;
    EXPECT_EQ(size.value(), (ImageSize{image.value().width, image.value().height})) << name;

    const auto processor = parse_image_processor(*c.find("config"), "config");
    ASSERT_TRUE(processor.ok()) << processor.error().message;
    const auto patches = prepare_image(image.value(), processor.value());
    ASSERT_TRUE(patches.ok()) << name;
    const Json::Array& grid = c.find("grid")->as_array();
    EXPECT_EQ(patches.value().grid,
              (ImageGrid{static_cast<int>(grid[0].as_int()), static_cast<int>(grid[1].as_int()),
                         static_cast<int>(grid[2].as_int())}))
        << name;
    EXPECT_EQ(grid_of(size.value(), processor.value()).value(), patches.value().grid) << name;
    EXPECT_EQ(sum_of(rows_of(patches.value())), c.find("rows")->as_int()) << name;
  }
}

TEST(MediaGoldens, ResizedPixelsArePillows) {
  const Json cases = parse_json(read("tests/golden/media/resizes.json"), "resizes").value();
  ASSERT_GE(cases.as_array().size(), 20U);
  const auto size_of = [](const Json& pair) {
    return ImageSize{static_cast<int>(pair.as_array()[0].as_int()),
                     static_cast<int>(pair.as_array()[1].as_int())};
  };
  for (const Json& c : cases.as_array()) {
    const ImageSize from = size_of(*c.find("from")), to = size_of(*c.find("to"));
    RgbImage image{.width = from.width, .height = from.height};
    for (uint64_t i = 0; i < uint64_t{3} * from.width * from.height; ++i)
      image.pixels.push_back(static_cast<uint8_t>((i * i * 2654435761U + i * 40503) >> 16));
    EXPECT_EQ(sum_of(resize_bicubic(image, to, ResizeArithmetic::pillow).pixels),
              c.find("pixels")->as_int())
        << c.dump();
  }
}

TEST(VideoGoldens, FramesTimesAndGridsAreTransformers) {
  const Json cases = parse_json(read("tests/golden/media/videos.json"), "videos").value();
  int refused = 0;
  for (const Json& c : cases.find("sampling")->as_array()) {
    const VideoProcessor processor = parse_video_processor(*c.find("config"), "config").value();
    const double fps = c.find("fps")->as_double();
    const auto frames = sampled_frames(c.find("frames")->as_int(), fps, processor);
    ASSERT_TRUE(frames.ok()) << c.dump();
    const ImageSize size{static_cast<int>(c.find("width")->as_int()),
                         static_cast<int>(c.find("height")->as_int())};
    const auto grid = video_grid(size, std::ssize(frames.value()), processor);
    EXPECT_EQ(grid.ok(), !c.find("refused")) << c.dump();
    refused += c.find("refused") != nullptr;
    if (!grid.ok() || c.find("refused")) continue;
    EXPECT_EQ(std::ssize(frames.value()), c.find("count")->as_int()) << c.dump();
    EXPECT_EQ(sum_of(frames.value()), c.find("indices")->as_int()) << c.dump();
    std::vector<char> times;
    for (const double time : frame_times(frames.value(), fps, processor.frame.temporal)) {
      char text[32];
      std::snprintf(text, sizeof text, times.empty() ? "%.1f" : " %.1f", time);
      times.insert(times.end(), text, text + std::strlen(text));
    }
    EXPECT_EQ(sum_of(times), c.find("times")->as_int()) << c.dump();
    EXPECT_EQ(grid.value().patches(), c.find("patches")->as_int()) << c.dump();
  }
  EXPECT_GT(refused, 5);
}

TEST(VideoGoldens, RowsAreTransformers) {
  const Json cases = parse_json(read("tests/golden/media/videos.json"), "videos").value();
  for (const Json& c : cases.find("rows")->as_array()) {
    std::vector<RgbImage> frames;
    for (uint64_t f = 0; f < static_cast<uint64_t>(c.find("frames")->as_int()); ++f) {
      RgbImage& image = frames.emplace_back();
      image.width = static_cast<int>(c.find("width")->as_int());
      image.height = static_cast<int>(c.find("height")->as_int());
      for (uint64_t i = 0; i < uint64_t{3} * image.width * image.height; ++i)
        image.pixels.push_back(
            static_cast<uint8_t>((i * i * 2654435761U + i * 40503 + f * 1234577) >> 16));
    }
    const auto patches =
        prepare_video(frames, parse_video_processor(*c.find("config"), "config").value());
    ASSERT_TRUE(patches.ok()) << patches.error().message;
    const Json::Array& grid = c.find("grid")->as_array();
    EXPECT_EQ(std::ssize(patches.value()), grid[0].as_int()) << c.dump();
    std::vector<float> rows;
    for (const ImagePatches& each : patches.value()) {
      EXPECT_EQ(each.grid, (ImageGrid{1, static_cast<int>(grid[1].as_int()),
                                      static_cast<int>(grid[2].as_int())}));
      const std::vector<float> more = rows_of(each);
      rows.insert(rows.end(), more.begin(), more.end());
    }
    EXPECT_EQ(sum_of(rows), c.find("rows")->as_int()) << c.dump();
  }
}

ImageProcessor small_processor() {
  ImageProcessor processor;
  processor.patch = 16;
  processor.min_pixels = 4096;
  return processor;
}

MediaDigest digest_of(const RgbImage& image, const ImageProcessor& processor) {
  return prepare_image(image, processor).value().digest;
}

TEST(MediaDigest, TellsEveryDifferenceOfTheRows) {
  RgbImage image{.width = 96, .height = 64};
  image.pixels.assign(size_t{96} * 64 * 3, 100);
  const ImageProcessor processor = small_processor();
  const MediaDigest digest = digest_of(image, processor);
  EXPECT_EQ(digest_of(image, processor), digest);
  EXPECT_NE(digest, MediaDigest{});

  RgbImage other = image;
  other.pixels[5000] = 101;
  EXPECT_NE(digest_of(other, processor), digest);
  RgbImage turned = image;  // the same bytes on another grid
  std::swap(turned.width, turned.height);
  EXPECT_NE(digest_of(turned, processor), digest);
  ImageProcessor changed = processor;
  changed.mean[1] = 0.5;
  EXPECT_NE(digest_of(image, changed), digest);
  changed = processor;
  changed.merge = 1;  // the patches are all equal, in whatever order
  EXPECT_EQ(digest_of(image, changed), digest);
}

TEST(MediaDigest, IsThatOfTheResultNotOfTheWayToIt) {
  RgbImage image{.width = 96, .height = 64};
  for (int i = 0; i < 96 * 64 * 3; ++i) image.pixels.push_back(static_cast<uint8_t>(i * 7));
  ImageProcessor wide = small_processor();
  wide.max_pixels *= 2;  // the size stays
  EXPECT_EQ(digest_of(image, wide), digest_of(image, small_processor()));
}

TEST(ImagePatches, StandInMergeOrder) {
  RgbImage image{.width = 64, .height = 64};  // each pixel says which patch it is in
  for (int y = 0; y < 64; ++y)
    for (int x = 0; x < 64; ++x) {
      image.pixels.push_back(static_cast<uint8_t>(y / 16));
      image.pixels.push_back(static_cast<uint8_t>(x / 16));
      image.pixels.push_back(static_cast<uint8_t>(y % 16 * 16 + x % 16));
    }
  const ImagePatches patches = prepare_image(image, small_processor()).value();
  ASSERT_EQ(patches.grid, (ImageGrid{1, 4, 4}));
  constexpr int kPlane = 2 * 16 * 16;
  const int rows[] = {0, 0, 1, 1, 0, 0, 1, 1, 2, 2, 3, 3, 2, 2, 3, 3};
  const int columns[] = {0, 1, 0, 1, 2, 3, 2, 3, 0, 1, 0, 1, 2, 3, 2, 3};
  for (int p = 0; p < 16; ++p)
    for (int i = 0; i < kPlane; ++i) {
      const uint8_t* patch = patches.levels.data() + p * 3 * kPlane;
      ASSERT_EQ(patch[i], rows[p]) << p;
      ASSERT_EQ(patch[kPlane + i], columns[p]) << p;
      ASSERT_EQ(patch[2 * kPlane + i], i % 256) << p;
    }
}

}  // namespace
}  // namespace nibble
