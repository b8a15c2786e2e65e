// Images that hold more than they may, say what is not true, or stop too early: one clear error, in
// little memory and time.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <thread>

#include "base/file.h"
#include "media/formats/format_decoders.h"
#include "media/image_decoder.h"
#include "media/testing/test_png.h"
#include "testing/soon.h"
#include "testing/source_dir.h"

#if defined(__SANITIZE_ADDRESS__)  // its header comes with clang only
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*)(const volatile void*, size_t),
                                                         void (*)(const volatile void*));
extern "C" size_t __sanitizer_get_allocated_size(const volatile void*);
#endif

namespace nibble {
namespace {

using std::string_literals::operator""s;

std::filesystem::path corpus() {
  return std::filesystem::path(NIBBLE_SOURCE_DIR) / "tests/corpus/image_fuzz";
}

std::string sample(const char* name) { return read_text_file(corpus() / name, 1 << 20).value(); }

std::string error_of(std::string_view file, const ImageLimits& limits = {}) {
  const auto size = read_image_size(bytes_of(file), limits);
  const auto image = decode_image(bytes_of(file), limits);
  if (!size.ok()) {
    EXPECT_FALSE(image.ok());
    EXPECT_EQ(size.error().message, image.error().message);
  }
  if (image.ok()) return "";
  EXPECT_EQ(image.error().message.find('\n'), std::string::npos);
  return image.error().message;
}

/// The most bytes that were allocated at once while it lives; 0 without the address sanitizer.
class PeakOfMemory {
 public:
#if defined(__SANITIZE_ADDRESS__)
  PeakOfMemory() {
    static const int installed = __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
    CHECK(installed > 0);
    now_ = peak_ = 0;
  }
  static int64_t bytes() { return peak_; }

 private:
  static void on_malloc(const volatile void*, size_t size) {
    const int64_t total = now_ += static_cast<int64_t>(size);
    if (total > peak_) peak_ = total;
  }
  static void on_free(const volatile void* memory) {
    if (memory) now_ -= static_cast<int64_t>(__sanitizer_get_allocated_size(memory));
  }
  static inline std::atomic<int64_t> now_ = 0, peak_ = 0;
#else
  static int64_t bytes() { return 0; }
#endif
};

TEST(ImageLimits, PixelsEdgesAndAspectAreHeldToTheirBound) {
  const ImageLimits limits{.pixels_max = 1200, .edge_max = 60, .aspect_max = 4};
  EXPECT_EQ(error_of(grey_png(40, 29, 29), limits), "");
  EXPECT_EQ(error_of(grey_png(40, 30, 30), limits), "");
  EXPECT_EQ(error_of(grey_png(1201, 1, 1), {.pixels_max = 1200, .aspect_max = 2000}),
            "image: expected at most 1200 pixels, found 1201 x 1 pixels; send a smaller image");
  EXPECT_EQ(error_of(grey_png(59, 20, 20), limits), "");
  EXPECT_EQ(error_of(grey_png(60, 20, 20), limits), "");
  EXPECT_EQ(
      error_of(grey_png(61, 16, 16), limits),
      "image: expected edges of at most 60 pixels, found 61 x 16 pixels; send a smaller image");
  EXPECT_EQ(error_of(grey_png(9, 35, 35), limits), "");
  EXPECT_EQ(error_of(grey_png(9, 36, 36), limits), "");
  EXPECT_EQ(error_of(grey_png(9, 37, 37), limits),
            "image: expected a longer edge of at most 4 shorter ones, found 9 x 37 pixels; send a "
            "smaller image");
}

TEST(ImageLimits, EncodedBytesAreHeldToTheirBound) {
  const std::string file = grey_png(8, 8, 8);
  EXPECT_EQ(error_of(file, {.encoded_bytes_max = file.size() + 1}), "");
  EXPECT_EQ(error_of(file, {.encoded_bytes_max = file.size()}), "");
  EXPECT_EQ(error_of(file, {.encoded_bytes_max = file.size() - 1}),
            concat("image file: expected at most ", file.size() - 1, " bytes, found ", file.size(),
                   "; send a smaller image"));
}

/// "" where the headers are fine.
std::string header_error(std::string_view file) {
  const auto size = read_image_size(bytes_of(file), {});
  return size.ok() ? "" : size.error().message;
}

TEST(ImageLimits, DefaultsAreThoseThatAreDocumented) {
  EXPECT_EQ(header_error(grey_png(200, 1, 1)), "");
  EXPECT_EQ(header_error(grey_png(201, 1, 1)),
            "image: expected a longer edge of at most 200 shorter ones, found 201 x 1 pixels; send "
            "a smaller image");
  EXPECT_EQ(header_error(grey_png(33'000, 1'000, 0)), "");
  EXPECT_EQ(header_error(grey_png(33'001, 1'000, 0)),
            "image: expected at most 33000000 pixels, found 33001 x 1000 pixels; send a smaller "
            "image");
  EXPECT_EQ(header_error(grey_png(65'535, 400, 0)), "");
  EXPECT_EQ(header_error(grey_png(65'536, 400, 0)),
            "image: expected edges of at most 65535 pixels, found 65536 x 400 pixels; send a "
            "smaller image");
  std::string large = grey_png(1, 1, 1);
  large.resize(20 << 20);
  EXPECT_EQ(header_error(large), "");
  EXPECT_EQ(header_error(large + '\0'),
            "image file: expected at most 20971520 bytes, found 20971521; send a smaller image");
  EXPECT_EQ(DecodeClock(ImageLimits{}.decode_ms_max).error().message,
            "image: expected one that is decoded within 10000 ms, found one that takes longer; "
            "send a smaller or simpler image");
}

TEST(ImageLimits, TimeIsUpInEveryFormat) {
  for (const char* name : {"jpeg-sub0-progressive0-q75", "jpeg-sub2-progressive1-q75",
                           "png-2-8-plain-2x3", "webp-lossy-17x33", "gif-interlaced"})
    EXPECT_EQ(
        error_of(sample(name), {.decode_ms_max = 0}),
        "image: expected one that is decoded within 0 ms, found one that takes longer; send a "
        "smaller or simpler image")
        << name;
}

TEST(ImageLimits, TimeInWhichNothingIsComputedDoesNotCount) {
  const DecodeClock clock(100);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_FALSE(clock.expired());
  volatile int work = 0;
  EXPECT_TRUE(testing::soon([&] {
    for (int i = 0; i < 10'000'000; ++i) work = i;
    return clock.expired();
  }));
}

TEST(HostileImages, HeadersThatLieCostNothing) {
  std::string jpeg = sample("jpeg-sub0-progressive0-q75");
  const size_t frame = jpeg.find("\xFF\xC0");
  ASSERT_NE(frame, jpeg.npos);
  jpeg.replace(frame + 5, 4, "\xFF\xDC\xFF\xDC");
  std::string gif = sample("gif-no-palette");
  gif.replace(6, 4, "\xFF\xFF\xFF\xFF");
  std::string outside = sample("gif-no-palette");  // the frame reaches out of the screen
  outside.replace(outside.find(',') + 1, 4, "\xFF\xFF\xFF\xFF");
  std::string webp = sample("webp-animated");
  webp.replace(24, 6, "\xFF\xFF\x7F\xFF\x01\x00"s);
  const PeakOfMemory peak;
  EXPECT_NE(error_of(grey_png(100'000, 100'000, 0)), "");
  EXPECT_NE(error_of(grey_png(0x7FFFFFFF, 0x7FFFFFFF, 0)), "");
  EXPECT_NE(error_of(grey_png(0xFFFFFFFF, 1, 0)), "");
  EXPECT_NE(error_of(grey_png(0, 5, 0)), "");
  EXPECT_NE(error_of(jpeg), "");
  EXPECT_NE(error_of(gif), "");
  EXPECT_NE(error_of(outside), "");
  EXPECT_NE(error_of(webp), "");
  EXPECT_LT(peak.bytes(), 1 << 20);
}

TEST(HostileImages, SizesWithinTheLimitsWithNothingBehindThem) {
  const ImageLimits limits{.pixels_max = 4'000'000};
  const PeakOfMemory peak;
  EXPECT_EQ(
      error_of(grey_png(2000, 2000, 3), limits),
      "image: expected a whole PNG file, found a damaged one; check the file, or save the image "
      "anew");
  std::string jpeg = sample("jpeg-cmyk-progressive1");  // four coefficients a pixel
  const size_t frame = jpeg.find("\xFF\xC2");
  ASSERT_NE(frame, jpeg.npos);
  jpeg.replace(frame + 5, 4, "\x07\xD0\x07\xD0");
  decode_image(bytes_of(jpeg), limits).ok();  // libjpeg fills up what is missing
  EXPECT_LT(peak.bytes(), decode_memory_max(limits));
}

/// A small progressive file with its last scan `count` times, of which the header says this edge.
std::string many_scans(int count, uint16_t edge) {
  std::string jpeg = sample("jpeg-grey-progressive1");
  const std::string side = {static_cast<char>(edge >> 8), static_cast<char>(edge)};
  jpeg.replace(jpeg.find("\xFF\xC2") + 5, 4, side + side);
  const size_t last = jpeg.rfind("\xFF\xDA");
  const std::string scan = jpeg.substr(last, jpeg.size() - 2 - last);
  std::string many = jpeg.substr(0, last);
  for (int i = 0; i < count; ++i) many += scan;
  return many + "\xFF\xD9";
}

TEST(HostileImages, ProgressiveFilesHaveALimitOfScans) {
  EXPECT_EQ(error_of(many_scans(400, 64)), "");
  EXPECT_EQ(
      error_of(many_scans(600, 64)),
      "image: expected a whole JPEG file, found a damaged one; check the file, or save the image "
      "anew");
}

TEST(HostileImages, TimeIsLookedAtWithinScans) {
  const std::string jpeg = many_scans(400, 5700);
  const std::clock_t begin = std::clock();
  const auto image = decode_image(bytes_of(jpeg), {.decode_ms_max = 20});
  ASSERT_FALSE(image.ok());
  EXPECT_TRUE(
      image.error().message.starts_with("image: expected one that is decoded within 20 ms"));
  EXPECT_LT(std::clock() - begin, CLOCKS_PER_SEC / 2);
}

TEST(HostileImages, DamagedOrientationCountsAsNone) {
  const std::string exif = "MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"s;
  std::string file = grey_png(9, 8, 8);
  file.insert(33, png_chunk("eXIf", exif));
  EXPECT_EQ(read_image_size(bytes_of(file), {}).value(), (ImageSize{8, 9}));
  file[33 + 8 + exif.size()] ^= 1;  // the chunk's sum
  EXPECT_EQ(read_image_size(bytes_of(file), {}).value(), (ImageSize{9, 8}));
}

TEST(HostileImages, TextsOfPngFilesInflateToALimit) {
  const std::string packed = deflated(std::string(size_t{64} << 20, 'x'));
  std::string file = grey_png(8, 8, 8);
  const std::string bombs = png_chunk("zTXt", "Raw profile type exif\0\0"s + packed) +
                            png_chunk("iCCP", "p\0\0"s + packed) +
                            png_chunk("iTXt", "XML:com.adobe.xmp\0\1\0\0\0"s + packed);
  file.insert(33, bombs);
  const PeakOfMemory peak;
  EXPECT_EQ(error_of(file), "");
  EXPECT_LT(peak.bytes(), 4 << 20);
}

TEST(HostileImages, TruncatedFilesAreErrorsOrWhole) {
  int errors = 0;
  for (const auto& entry : std::filesystem::directory_iterator(corpus())) {
    const std::string whole = read_text_file(entry.path(), 1 << 20).value();
    for (size_t part = 0; part < 8; ++part) {
      const std::string cut = whole.substr(0, whole.size() * part / 8);
      const auto image = decode_image(bytes_of(cut), {});
      if (image.ok()) continue;
      ++errors;
      EXPECT_LT(image.error().message.size(), 160U) << entry.path();
    }
    EXPECT_NE(error_of(whole.substr(0, whole.size() / 4)), "") << entry.path();
  }
  EXPECT_GT(errors, 300);
  EXPECT_EQ(
      error_of(sample("jpeg-sub0-progressive0-q75").substr(0, 900)),
      "image: expected a whole JPEG file, found one that ends too early; check the file, or save "
      "the image anew");
}

TEST(HostileImages, KindsOfJpegThatAreNotTaken) {
  std::string deep = sample("jpeg-sub0-progressive0-q75");
  deep[deep.find("\xFF\xC0") + 4] = 12;
  EXPECT_EQ(
      error_of(deep),
      "JPEG image: expected 8 bits, baseline or progressive, found another kind; save the image "
      "anew in a common form");
  std::string large = sample("jpeg-sub0-progressive0-q75");
  large.replace(large.find("\xFF\xC0") + 5, 4, "\x01\x90\xFF\xDD");
  EXPECT_EQ(
      error_of(large),
      "JPEG image: expected edges of at most 65500 pixels, found a longer one; send a smaller "
      "image");
  EXPECT_EQ(decode_image(bytes_of(large), {}).error().code, ErrorCode::invalid_argument);
  std::string lossless = sample("jpeg-sub0-progressive0-q75");
  lossless[lossless.find("\xFF\xC0") + 1] = '\xC3';
  EXPECT_EQ(decode_image(bytes_of(lossless), {}).error().code, ErrorCode::unsupported);
}

TEST(HostileImages, OtherFormatsAreNamed) {
  EXPECT_EQ(
      error_of("BM" + std::string(60, '\0')),
      "image: expected JPEG, PNG, WebP or GIF, found BMP; convert it to one of these formats");
  EXPECT_EQ(error_of(""),
            "image: expected JPEG, PNG, WebP or GIF, found no bytes; send the file's "
            "bytes");
}

}  // namespace
}  // namespace nibble
