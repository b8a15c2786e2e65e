// GIF through giflib: the first frame on its canvas, as Pillow lays it there.
#include <gif_lib.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "media/formats/format_decoders.h"

namespace nibble {
namespace {

struct GifSource {
  ImageBytes bytes;
  size_t at = 0;
  bool ended = false;  // more was asked for than there is
};

int read_bytes(GifFileType* file, GifByteType* out, int count) {
  auto* source = static_cast<GifSource*>(file->UserData);
  const size_t have = std::min<size_t>(count, source->bytes.size() - source->at);
  std::memcpy(out, source->bytes.data() + source->at, have);
  source->at += have;
  source->ended = source->ended || have < static_cast<size_t>(count);
  return static_cast<int>(have);
}

struct CloseGif {
  void operator()(GifFileType* file) const { DGifCloseFile(file, nullptr); }
};

using Palette = std::array<std::array<uint8_t, 3>, 256>;

/// A ramp of grey levels equal to their indices is no palette to Pillow.
bool is_ramp(const ColorMapObject& map) {
  for (int i = 0; i < map.ColorCount; ++i)
    if (map.Colors[i].Red != i || map.Colors[i].Green != i || map.Colors[i].Blue != i) return false;
  return true;
}

/// Indices beyond the palette are black; without one an index is a grey level.
Palette palette_of(const ColorMapObject* local, const ColorMapObject* global) {
  Palette palette = {};
  const ColorMapObject* map = local && !is_ramp(*local) ? local : global;
  if (!map || is_ramp(*map)) {
    for (int i = 0; i < 256; ++i) palette[i].fill(static_cast<uint8_t>(i));
    return palette;
  }
  for (int i = 0; i < std::min(map->ColorCount, 256); ++i)
    palette[i] = {map->Colors[i].Red, map->Colors[i].Green, map->Colors[i].Blue};
  return palette;
}

class GifReader {
 public:
  explicit GifReader(ImageBytes bytes) : source_{.bytes = bytes} {
    file_.reset(DGifOpen(&source_, read_bytes, nullptr));
  }

  /// Reads on to the pixels of the first frame.
  Result<void> find_frame(const DecodeClock& clock) {
    GifRecordType record = UNDEFINED_RECORD_TYPE;
    while (file_ && DGifGetRecordType(file_.get(), &record) == GIF_OK) {
      if (clock.expired()) return clock.error();
      if (record == IMAGE_DESC_RECORD_TYPE) return read_description();
      if (record != EXTENSION_RECORD_TYPE || !read_extension()) break;
    }
    return error();
  }

  /// Why the last call of giflib failed.
  Error error() const {
    if (memory_.failed()) return short_of_memory();
    return damaged_image("GIF", source_.ended ? Damage::truncated : Damage::data);
  }
  const GifImageDesc& frame() const { return file_->Image; }
  /// The screen, enlarged where the frame reaches out of it.
  ImageSize canvas() const {
    return {.width = std::max(file_->SWidth, frame().Left + frame().Width),
            .height = std::max(file_->SHeight, frame().Top + frame().Height)};
  }
  std::optional<int> transparent() const { return transparent_; }
  Palette palette() const { return palette_of(frame().ColorMap, file_->SColorMap); }
  bool read_row(uint8_t* indices) {
    return DGifGetLine(file_.get(), indices, frame().Width) == GIF_OK;
  }

 private:
  Result<void> read_description() {
    if (DGifGetImageDesc(file_.get()) != GIF_OK || frame().Width < 1 || frame().Height < 1)
      return error();
    return {};
  }

  bool read_extension() {
    int code = 0;
    GifByteType* block = nullptr;
    if (DGifGetExtension(file_.get(), &code, &block) != GIF_OK) return false;
    if (code == GRAPHICS_EXT_FUNC_CODE && block && block[0] >= 4 && (block[1] & 1))
      transparent_ = block[4];
    while (block)
      if (DGifGetExtensionNext(file_.get(), &block) != GIF_OK) return false;
    return true;
  }

  GifSource source_;
  AllocationWatch memory_;
  std::unique_ptr<GifFileType, CloseGif> file_;
  std::optional<int> transparent_;
};

/// Interlaced files have rows 0, 8, 16..., then 4, 12..., then 2, 6..., then the odd ones.
std::vector<int> row_order(int height, bool interlaced) {
  struct Pass {
    int first, step;
  };
  std::vector<int> order;
  order.reserve(height);
  for (const Pass& pass :
       interlaced ? std::vector<Pass>{{0, 8}, {4, 8}, {2, 4}, {1, 2}} : std::vector<Pass>{{0, 1}})
    for (int y = pass.first; y < height; y += pass.step) order.push_back(y);
  return order;
}

}  // namespace

Result<ImageSize> gif_size(ImageBytes bytes, const DecodeClock& clock) {
  GifReader reader(bytes);
  TRY(reader.find_frame(clock));
  return reader.canvas();
}

Result<RgbImage> decode_gif(ImageBytes bytes, const ImageSize& size, const DecodeClock& clock) {
  GifReader reader(bytes);
  TRY(reader.find_frame(clock));
  CHECK(reader.canvas() == size, size.width, " x ", size.height);
  const Palette palette = reader.palette();
  RgbImage image = make_image(size);
  const auto paint = [&](int y, int x, int index) {
    std::memcpy(&image.pixels[(size_t{3} * size.width) * y + size_t{3} * x], palette[index].data(),
                3);
  };
  for (int y = 0; y < size.height; ++y)
    for (int x = 0; x < size.width; ++x) paint(y, x, reader.transparent().value_or(0));
  std::vector<uint8_t> indices(reader.frame().Width);
  for (const int y : row_order(reader.frame().Height, reader.frame().Interlace)) {
    if (clock.expired()) return clock.error();
    if (!reader.read_row(indices.data())) return reader.error();
    for (int x = 0; x < reader.frame().Width; ++x)
      paint(reader.frame().Top + y, reader.frame().Left + x, indices[x]);
  }
  if (const auto index = reader.transparent())
    whiten(image, {palette[*index][0], palette[*index][1], palette[*index][2]});
  return image;
}

}  // namespace nibble
