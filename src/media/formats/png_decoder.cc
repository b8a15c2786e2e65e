// PNG through libpng. Its errors jump: every call of it that may fail stands in a function of
// PngReader that has no object to destroy, so no jump passes a destructor.
#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstring>
#include <optional>

#include "media/formats/png_chunks.h"

namespace nibble {
namespace {

enum class PngState { fine, damaged, truncated, late, no_memory };

class PngReader {
 public:
  PngReader(ImageBytes bytes, const DecodeClock& clock) : bytes_(bytes), clock_(clock) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error, on_warning);
    if (png_) info_ = png_create_info_struct(png_);
  }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }

  PngState read_header() {
    if (!png_ || !info_) return PngState::no_memory;
    if (setjmp(out_)) return state_;
    png_set_read_fn(png_, this, on_read);
    png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    png_set_chunk_malloc_max(png_, bytes_.size() + 4096);
    // Everything but the header, palette, tRNS and pixels is passed over without being kept.
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
    png_read_info(png_, info_);
    return PngState::fine;
  }

  /// Rows become one byte a pixel (grey level or index), two (grey of 16 bits) or three (RGB).
  PngState start() {
    if (setjmp(out_)) return state_;
    png_set_packing(png_);
    if (!(color() == PNG_COLOR_TYPE_GRAY && depth() == 16)) png_set_strip_16(png_);
    if (color() & PNG_COLOR_MASK_ALPHA) png_set_strip_alpha(png_);
    passes_ = png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    return PngState::fine;
  }

  PngState read_row(uint8_t* row) {
    if (setjmp(out_)) return state_;
    png_read_row(png_, row, nullptr);
    return PngState::fine;
  }

  int64_t width() const { return png_get_image_width(png_, info_); }
  int64_t height() const { return png_get_image_height(png_, info_); }
  int color() const { return png_get_color_type(png_, info_); }
  int depth() const { return png_get_bit_depth(png_, info_); }
  int passes() const { return passes_; }
  size_t row_bytes() const { return png_get_rowbytes(png_, info_); }
  std::span<const png_color> palette() const {
    png_colorp colors = nullptr;
    int count = 0;
    if (!png_get_PLTE(png_, info_, &colors, &count)) return {};
    return {colors, static_cast<size_t>(count)};
  }

 private:
  [[noreturn]] static void on_error(png_structp png, png_const_charp) {
    auto* reader = static_cast<PngReader*>(png_get_error_ptr(png));
    reader->leave(reader->memory_.failed() ? PngState::no_memory : PngState::damaged);
  }
  static void on_warning(png_structp, png_const_charp) {}
  static void on_read(png_structp png, png_bytep out, size_t count) {
    auto* reader = static_cast<PngReader*>(png_get_io_ptr(png));
    if (reader->clock_.expired()) reader->leave(PngState::late);
    if (count > reader->bytes_.size() - reader->at_) reader->leave(PngState::truncated);
    std::memcpy(out, reader->bytes_.data() + reader->at_, count);
    reader->at_ += count;
  }
  [[noreturn]] void leave(PngState state) {
    state_ = state;
    std::longjmp(out_, 1);
  }

  ImageBytes bytes_;
  const DecodeClock& clock_;
  size_t at_ = 0;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  int passes_ = 1;
  AllocationWatch memory_;
  PngState state_ = PngState::fine;
  std::jmp_buf out_;
};

Error png_error_of(PngState state, const DecodeClock& clock) {
  if (state == PngState::late) return clock.error();
  if (state == PngState::no_memory) return short_of_memory();
  return damaged_image("PNG", state == PngState::truncated ? Damage::truncated : Damage::data);
}

/// The colour of each byte of a row of one byte a pixel.
std::array<std::array<uint8_t, 3>, 256> color_table(int color, int file_depth,
                                                    std::span<const png_color> palette) {
  std::array<std::array<uint8_t, 3>, 256> table = {};  // indices beyond the palette are black
  if (color == PNG_COLOR_TYPE_PALETTE) {
    for (size_t i = 0; i < std::min<size_t>(palette.size(), 256); ++i)
      table[i] = {palette[i].red, palette[i].green, palette[i].blue};
    return table;
  }
  const int steps = file_depth < 8 ? (1 << file_depth) - 1 : 255;
  for (int i = 0; i <= steps; ++i) table[i].fill(static_cast<uint8_t>(i * (255 / steps)));
  return table;
}

/// The palette entry that tRNS makes transparent, if it leaves all others alone. Pillow finds it
/// with the expression ^\xff*\x00\xff*$, whose end may stand before a last byte 0x0A.
std::optional<int> transparent_entry(std::string_view alphas) {
  if (alphas.ends_with('\n')) alphas.remove_suffix(1);
  const size_t first = alphas.find_first_not_of('\xFF');
  if (first == alphas.npos || alphas[first] != '\0') return std::nullopt;
  if (alphas.find_first_not_of('\xFF', first + 1) != alphas.npos) return std::nullopt;
  return static_cast<int>(first);
}

/// The transparent colour as Pillow hands it to its RGB image: unscaled, and of grey levels of 1
/// and 16 bits the red part alone.
std::optional<TransparentKey> transparent_key(const PngReader& reader, int file_depth,
                                              std::string_view trns) {
  const auto word = [&](size_t i) {
    return static_cast<uint8_t>(trns[2 * i]) << 8 | static_cast<uint8_t>(trns[2 * i + 1]);
  };
  if (reader.color() == PNG_COLOR_TYPE_PALETTE) {
    const auto entry = transparent_entry(trns);
    if (!entry) return std::nullopt;
    const auto color = *entry < 256 ? color_table(reader.color(), 8, reader.palette())[*entry]
                                    : std::array<uint8_t, 3>{};
    return TransparentKey{color[0], color[1], color[2]};
  }
  if (reader.color() == PNG_COLOR_TYPE_RGB && trns.size() >= 6)
    return TransparentKey{word(0), word(1), word(2)};
  if (reader.color() != PNG_COLOR_TYPE_GRAY || trns.size() < 2) return std::nullopt;
  if (file_depth == 1) return TransparentKey{word(0) ? 255 : 0, 0, 0};
  if (file_depth == 16) return TransparentKey{word(0), 0, 0};
  const int level = std::min(word(0), 255);
  return TransparentKey{level, level, level};
}

/// One row of the file to RGB.
void convert_row(const uint8_t* in, size_t bytes_per_pixel,
                 const std::array<std::array<uint8_t, 3>, 256>& table, int width, uint8_t* out) {
  if (bytes_per_pixel == 3) {
    std::memcpy(out, in, size_t{3} * width);
    return;
  }
  for (int x = 0; x < width; ++x, out += 3) {
    if (bytes_per_pixel == 1)
      std::memcpy(out, table[in[x]].data(), 3);
    else  // Pillow clips grey of 16 bits to 255
      std::memset(out, in[2 * x] != 0 ? 255 : in[2 * x + 1], 3);
  }
}

Result<void> read_rows(PngReader& reader, const DecodeClock& clock, int file_depth,
                       RgbImage& image) {
  const size_t pixel_bytes = reader.row_bytes() / image.width;
  const bool interlaced = reader.passes() > 1;
  const auto table = color_table(reader.color(), file_depth, reader.palette());
  std::vector<uint8_t> rows(reader.row_bytes() * (interlaced ? image.height : 1));
  for (int pass = 0; pass < reader.passes(); ++pass)
    for (int y = 0; y < image.height; ++y) {
      if (clock.expired()) return clock.error();
      uint8_t* row = rows.data() + (interlaced ? y * reader.row_bytes() : 0);
      const PngState state = reader.read_row(row);
      if (state != PngState::fine) return png_error_of(state, clock);
      if (pass + 1 == reader.passes())
        convert_row(row, pixel_bytes, table, image.width,
                    image.pixels.data() + size_t{3} * image.width * y);
    }
  return {};
}

}  // namespace

Result<ImageSize> png_size(ImageBytes bytes, const DecodeClock& clock) {
  PngReader reader(bytes, clock);
  const PngState state = reader.read_header();
  if (state != PngState::fine) return png_error_of(state, clock);
  return ImageSize{.width = static_cast<int>(reader.width()),
                   .height = static_cast<int>(reader.height())};
}

Result<RgbImage> decode_png(ImageBytes bytes, const ImageSize& size, const DecodeClock& clock) {
  PngReader reader(bytes, clock);
  PngState state = reader.read_header();
  const int file_depth = state == PngState::fine ? reader.depth() : 0;
  if (state == PngState::fine) state = reader.start();
  if (state != PngState::fine) return png_error_of(state, clock);
  CHECK(reader.width() == size.width && reader.height() == size.height, reader.width());
  RgbImage image = make_image(size);
  TRY(read_rows(reader, clock, file_depth, image));
  const std::string_view trns = TRY(read_png_transparency(bytes, clock));
  if (const auto key = transparent_key(reader, file_depth, trns)) whiten(image, *key);
  return image;
}

}  // namespace nibble
