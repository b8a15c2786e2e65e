// Settings of image processors as checkpoints and requests have them.
#include "media/image_processor.h"

#include <gtest/gtest.h>

#include "media/processor_request.h"
#include "testing/test_files.h"

namespace nibble {
namespace {

ImageProcessor parsed(std::string_view text) {
  auto processor = parse_image_processor(parse_json(text, "test").value(), "config");
  EXPECT_TRUE(processor.ok()) << processor.error().message;
  return processor.value();
}

std::string parse_error(std::string_view text) {
  const auto processor = parse_image_processor(parse_json(text, "test").value(), "config");
  return processor.ok() ? "no error" : processor.error().message;
}

/// The settings of published checkpoints of Qwen3.5.
ImageProcessor published() {
  return parsed(R"({"size": {"longest_edge": 16777216, "shortest_edge": 65536}, "patch_size": 16,
    "temporal_patch_size": 2, "merge_size": 2, "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5], "processor_class": "Qwen3VLProcessor",
    "image_processor_type": "Qwen2VLImageProcessorFast"})");
}

TEST(ImageProcessor, ReadsAPublishedConfiguration) {
  const ImageProcessor p = published();
  EXPECT_EQ(p.patch, 16);
  EXPECT_EQ(p.factor(), 32);
  EXPECT_EQ(p.patch_values(), 1536);
  EXPECT_EQ(p.min_pixels, 65536);
  EXPECT_EQ(p.max_pixels, 16777216);
  EXPECT_EQ(p.mean[2], 0.5);
  EXPECT_EQ(p.deviation[0], 0.5);
}

TEST(ImageProcessor, DefaultsAreThoseOfTheClass) {
  const ImageProcessor p = parsed("{}");
  EXPECT_EQ(p.patch, 14);
  EXPECT_EQ(p.min_pixels, 56 * 56);
  EXPECT_EQ(p.max_pixels, 28 * 28 * 1280);
  EXPECT_EQ(p.mean[0], 0.48145466);
  EXPECT_EQ(p.deviation[2], 0.27577711);
}

TEST(ImageProcessor, MinAndMaxPixelsGoBeforeSize) {
  const ImageProcessor p = parsed(R"({"size": {"longest_edge": 99999, "shortest_edge": 4000},
    "min_pixels": 5000, "max_pixels": 88888, "image_mean": 0.25, "do_normalize": null})");
  EXPECT_EQ(p.min_pixels, 5000);
  EXPECT_EQ(p.max_pixels, 88888);
  EXPECT_EQ(p.mean[1], 0.25);
  EXPECT_TRUE(p.normalize);
}

TEST(ImageProcessor, WrongConfigurationsAreNamed) {
  EXPECT_EQ(
      parse_error(R"({"patch_size": 0})"),
      "config: patch_size: expected a whole number from 1 to 64, found 0; correct the file or "
      "fetch it again");
  EXPECT_EQ(
      parse_error(R"({"image_processor_type": "CLIPImageProcessor"})"),
      "config: image_processor_type: expected Qwen2VLImageProcessor, found CLIPImageProcessor; "
      "--no-vision serves text alone");
  for (const char* key : {"do_center_crop", "do_pad"}) {
    EXPECT_EQ(
        parse_error(concat("{\"", key, "\": true}")),
        concat("config: ", key, ": expected false, found true; --no-vision serves text alone"));
    EXPECT_EQ(parse_error(concat("{\"", key, "\": false}")), "no error");
    EXPECT_EQ(parse_error(concat("{\"", key, "\": null}")), "no error");
  }
  for (const char* text : {"[]",
                           R"({"patch_size": 65})",
                           R"({"patch_size": "16"})",
                           R"({"merge_size": 9})",
                           R"({"temporal_patch_size": 0})",
                           R"({"resample": 2})",
                           R"({"do_resize": false})",
                           R"({"do_convert_rgb": false})",
                           R"({"do_rescale": 1})",
                           R"({"image_std": [0, 1, 1]})",
                           R"({"image_std": [1, 1]})",
                           R"({"image_mean": ["a", 1, 1]})",
                           R"({"image_mean": 1e9})",
                           R"({"rescale_factor": 0})",
                           R"({"rescale_factor": true})",
                           R"({"size": 224})",
                           R"({"size": {"height": 2, "width": 2}})",
                           R"({"size": {"longest_edge": 4096}})",
                           R"({"size": {"longest_edge": 4096, "shortest_edge": 8192}})",
                           R"({"max_pixels": 783, "min_pixels": 1})",
                           R"({"max_pixels": 4294967296})",
                           R"({"min_pixels": 0})",
                           R"({"image_processor_type": 7})"})
    EXPECT_NE(parse_error(text), "no error") << text;
}

TEST(ImageProcessor, FolderHasItInOneOfTwoFiles) {
  const TemporaryFolder folder;
  const auto write = [&](const char* name, const char* text) {
    write_test_file(folder / name, text);
  };
  EXPECT_FALSE(load_image_processor(folder.path().string()).value().has_value());
  write("preprocessor_config.json", R"({"patch_size": 16})");
  EXPECT_EQ(load_image_processor(folder.path().string()).value()->patch, 16);
  write("processor_config.json", R"({"processor_class": "Qwen3VLProcessor"})");
  EXPECT_EQ(load_image_processor(folder.path().string()).value()->patch, 16);
  write("processor_config.json", R"({"image_processor": {"patch_size": 18}})");
  EXPECT_EQ(load_image_processor(folder.path().string()).value()->patch, 18);
  write("processor_config.json", "{");
  EXPECT_EQ(load_image_processor(folder.path().string()).error().code, ErrorCode::corrupt);
}

TEST(ImageProcessor, RequestsMayChangeTheAreaWithinTheServers) {
  const ImageProcessor p = published();
  const auto with = [&](std::string_view text) {
    return with_request_settings(p, parse_json(text, "test").value());
  };
  EXPECT_EQ(with("{}").value().max_pixels, p.max_pixels);
  EXPECT_EQ(with(R"({"max_pixels": 1024})").value().max_pixels, 1024);
  EXPECT_EQ(with(R"({"max_pixels": 1024})").value().min_pixels, 1024);
  EXPECT_EQ(with(R"({"max_pixels": 16777216})").value().max_pixels, 16777216);
  EXPECT_EQ(with(R"({"size": {"shortest_edge": 7, "longest_edge": 5000}})").value().min_pixels, 7);
  EXPECT_EQ(with(R"({"size": {"longest_edge": 5000}, "max_pixels": 6000})").value().max_pixels,
            6000);
  EXPECT_EQ(with(R"({"max_pixels": 5000, "images_kwargs": {"max_pixels": 6000}, "fps": 1,
                     "videos_kwargs": {"max_pixels": 7000, "num_frames": 4}})")
                .value()
                .max_pixels,
            6000);
  for (const char* text :
       {R"({"max_pixels": 1023})", R"({"max_pixels": 16777217})", R"({"min_pixels": 0})",
        R"({"min_pixels": 5000, "max_pixels": 4999})", R"({"max_pixels": "1024"})",
        R"({"max_pixels": 1e6})", R"({"pixels": 2})", R"({"size": 5})",
        R"({"size": {"height": 5}})", "[]", R"({"min_pixels": 16777217})",
        R"({"images_kwargs": 5})", R"({"images_kwargs": {"images_kwargs": {}}})",
        R"({"videos_kwargs": {"pixels": 5}})", R"({"images_kwargs": {"max_pixels": 1}})"}) {
    const auto changed = with(text);
    ASSERT_FALSE(changed.ok()) << text;
    EXPECT_EQ(changed.error().code, ErrorCode::invalid_argument) << text;
    EXPECT_TRUE(changed.error().message.starts_with("mm_processor_kwargs: ")) << text;
  }
}

TEST(ImageProcessor, WrongBoundsAreNamedByWhoSetThem) {
  const ImageProcessor p = published();
  EXPECT_EQ(with_request_settings(p, parse_json(R"({"max_pixels": 1023})", "test").value())
                .error()
                .message,
            "mm_processor_kwargs: max_pixels: expected at least 1024, one token, found 1023; leave "
            "it out for the server's own");
  EXPECT_EQ(with_pixels(p, 1, 16777217).error().message,
            "max_pixels: expected at most 16777216, found 16777217");
  EXPECT_EQ(with_pixels(p, 5000, 4999).error().message,
            "min_pixels: expected from 1 to max_pixels, 4999, found 5000");
  ImageProcessor tiny = p;
  tiny.max_pixels = 500;  // less than a token
  EXPECT_EQ(with_pixels(tiny, std::nullopt, std::nullopt).error().message,
            "max_pixels: expected at least 1024, one token, found 500");
}

}  // namespace
}  // namespace nibble
