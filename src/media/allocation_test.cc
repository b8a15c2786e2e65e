// Every allocation of the decoders' libraries fails once, for files of every format: each time that
// is an error of memory, not of the file, and never a wrong image. Lossless WebP is left out: where
// its tables have no memory, libwebp 1.2.4 frees an address that it never set.
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>

#include "base/file.h"
#include "media/image_decoder.h"
#include "testing/source_dir.h"

// Libraries in C call these instead of the sanitizer's own; operator new does not.
#if defined(__SANITIZE_ADDRESS__)

extern "C" void* __interceptor_malloc(size_t);
extern "C" void* __interceptor_calloc(size_t, size_t);
extern "C" void* __interceptor_realloc(void*, size_t);

namespace {

thread_local int64_t allocations_left = -1;  // until one fails; below 0: none does

bool fails() {
  if (allocations_left < 0 || allocations_left-- > 0) return false;
  errno = ENOMEM;
  return true;
}

}  // namespace

extern "C" void* malloc(size_t size) { return fails() ? nullptr : __interceptor_malloc(size); }
extern "C" void* calloc(size_t count, size_t size) {
  return fails() ? nullptr : __interceptor_calloc(count, size);
}
extern "C" void* realloc(void* old, size_t size) {
  return fails() ? nullptr : __interceptor_realloc(old, size);
}

namespace nibble {
namespace {

std::string sample(const char* name) {
  const auto corpus = std::filesystem::path(NIBBLE_SOURCE_DIR) / "tests/corpus/image_fuzz";
  return read_text_file(corpus / name, 1 << 20).value();
}

class Allocations : public testing::TestWithParam<const char*> {};

TEST_P(Allocations, ThatFailAreErrorsOfMemory) {
  const std::string file = sample(GetParam());
  const auto bytes = std::as_bytes(std::span(file));
  const auto whole = decode_image(bytes, {});
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  int failed = 0;
  for (bool reached = true; reached; ++failed) {
    ASSERT_LT(failed, 10'000);
    allocations_left = failed;
    const auto image = decode_image(bytes, {});
    reached = allocations_left < 0;
    allocations_left = failed;
    const auto size = read_image_size(bytes, {});
    allocations_left = -1;
    EXPECT_TRUE(size.ok() || size.error().code == ErrorCode::no_memory) << size.error().message;
    if (image.ok()) {
      EXPECT_EQ(image.value().pixels, whole.value().pixels) << failed;
      continue;
    }
    EXPECT_EQ(image.error().code, ErrorCode::no_memory) << failed << ": " << image.error().message;
    EXPECT_EQ(image.error().message,
              "decoding an image: expected enough memory, found too little; send a smaller image "
              "or fewer at once")
        << failed;
  }
  EXPECT_GT(failed, 3);
}

INSTANTIATE_TEST_SUITE_P(Formats, Allocations,
                         testing::Values("jpeg-sub0-progressive0-q75", "jpeg-cmyk-progressive1",
                                         "png-2-8-plain-2x3", "webp-lossy-17x33",
                                         "webp-lossy-200x1", "gif-interlaced", "gif-no-palette"));

}  // namespace
}  // namespace nibble

#endif
