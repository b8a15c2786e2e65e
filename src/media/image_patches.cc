// Cutting, normalising and hashing. The values are transformers' rescale (FP64, rounded to F32) and
// normalize (F32, subtraction and division rounded one by one), of which there are 256 a channel.
#include "media/image_patches.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <string_view>

#include "media/bicubic_resize.h"

namespace nibble {
namespace {

class Digest {
 public:
  Digest() : context_(EVP_MD_CTX_new()) {
    CHECK(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1, "OpenSSL has no SHA-256");
  }
  void add(const void* data, size_t bytes) {
    CHECK(EVP_DigestUpdate(context_.get(), data, bytes) == 1, bytes);
  }
  MediaDigest first_half() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> all = {};
    unsigned int size = 0;
    CHECK(EVP_DigestFinal_ex(context_.get(), all.data(), &size) == 1);
    MediaDigest half;
    std::memcpy(half.data(), all.data(), sizeof half);
    return half;
  }

 private:
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> context_;
};

MediaDigest digest_of(const ImagePatches& patches) {
  Digest digest;
  const std::string_view kind = "nibble patches 1";
  const std::array<int32_t, 5> shape = {patches.grid.t, patches.grid.h, patches.grid.w,
                                        patches.patch, patches.temporal};
  digest.add(kind.data(), kind.size());
  digest.add(shape.data(), sizeof shape);
  digest.add(patches.values.data(), sizeof patches.values);
  digest.add(patches.levels.data(), patches.levels.size());
  return digest.first_half();
}

float value_of(int byte, size_t channel, const ImageProcessor& processor) {
  auto value = static_cast<float>(byte);
  if (processor.rescale) value = static_cast<float>(byte * processor.rescale_factor);
  if (processor.normalize)
    value = (value - static_cast<float>(processor.mean[channel])) /
            static_cast<float>(processor.deviation[channel]);
  return value;
}

/// The patch whose upper left corner is pixel (y, x), as [3, temporal, patch, patch] with equal
/// frames.
void cut_patch(const RgbImage& image, int y, int x, const ImagePatches& patches, uint8_t* out) {
  const size_t edge = patches.patch, area = edge * edge;
  const size_t plane = area * patches.temporal;
  for (size_t row = 0; row < edge; ++row) {
    const uint8_t* in = image.pixels.data() + ((y + row) * image.width + x) * 3;
    uint8_t* to = out + row * edge;
    for (size_t i = 0; i < edge; ++i) {
      to[i] = in[3 * i];
      to[plane + i] = in[3 * i + 1];
      to[2 * plane + i] = in[3 * i + 2];
    }
  }
  for (uint8_t* first = out; first < out + 3 * plane; first += plane)
    for (uint8_t* frame = first + area; frame < first + plane; frame += area)
      std::memcpy(frame, first, area);
}

void cut(const RgbImage& image, int merge, ImagePatches& patches) {
  const int edge = patches.patch;
  const size_t row_levels = size_t{3} * patches.temporal * edge * edge;
  uint8_t* out = patches.levels.data();
  for (int window_y = 0; window_y < patches.grid.h; window_y += merge)
    for (int window_x = 0; window_x < patches.grid.w; window_x += merge)
      for (int y = window_y; y < window_y + merge; ++y)
        for (int x = window_x; x < window_x + merge; ++x) {
          cut_patch(image, y * edge, x * edge, patches, out);
          out += row_levels;
        }
}

ImagePatches patches_of(const RgbImage& image, const ImageGrid& grid,
                        const ImageProcessor& processor) {
  ImagePatches patches{.grid = grid, .patch = processor.patch, .temporal = processor.temporal};
  for (size_t channel = 0; channel < 3; ++channel)
    for (int byte = 0; byte < 256; ++byte)
      patches.values[channel][byte] = value_of(byte, channel, processor);
  patches.levels.resize(grid.patches() * processor.patch_values());
  const ImageSize size{.width = grid.w * processor.patch, .height = grid.h * processor.patch};
  if (size.width == image.width && size.height == image.height)
    cut(image, processor.merge, patches);
  else
    cut(resize_bicubic(image, size), processor.merge, patches);
  patches.digest = digest_of(patches);
  return patches;
}

}  // namespace

Result<ImagePatches> prepare_image(const RgbImage& image, const ImageProcessor& processor) try {
  const ImageGrid grid = TRY(grid_of({image.width, image.height}, processor));
  return patches_of(image, grid, processor);
} catch (const std::bad_alloc&) {
  return make_error(ErrorCode::no_memory,
                    {concat("preparing an image of ", image.width, " x ", image.height, " pixels"),
                     "enough memory", "too little", "send a smaller image or fewer at once"});
}

}  // namespace nibble
