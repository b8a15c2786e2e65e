// JPEG through libjpeg-turbo. Its errors jump: every call of it that may fail stands in a function
// of JpegReader that has no object to destroy, so no jump passes a destructor.
// clang-format off
#include <cstdio>  // jpeglib.h needs it before itself
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#include <csetjmp>

#include "media/formats/format_decoders.h"

namespace nibble {
namespace {

// Scans of a progressive file; the number is what libjpeg-turbo advises for hostile files.
constexpr int kScansMax = 500;
constexpr int64_t kWorkBytes = 16 << 20;

enum class JpegState { fine, damaged, truncated, unsupported, too_large, late, no_memory };

/// libjpeg's view of the bytes, with the way out of an error.
struct JpegContext {
  jpeg_error_mgr errors = {};
  jpeg_source_mgr source = {};
  jpeg_progress_mgr progress = {};
  const DecodeClock* clock = nullptr;
  JpegState state = JpegState::fine;
  std::jmp_buf out;
};

JpegContext& context_of(j_common_ptr info) { return *static_cast<JpegContext*>(info->client_data); }

[[noreturn]] void leave(j_common_ptr info, JpegState state) {
  context_of(info).state = state;
  std::longjmp(context_of(info).out, 1);
}

void on_error(j_common_ptr info) {
  switch (info->err->msg_code) {
    case JERR_SOF_UNSUPPORTED:
    case JERR_BAD_PRECISION:
    case JERR_CONVERSION_NOTIMPL:
    case JERR_BAD_J_COLORSPACE:
    case JERR_CCIR601_NOTIMPL:
    case JERR_FRACT_SAMPLE_NOTIMPL:
#if JPEG_LIB_VERSION < 70  // libraries with a later interface have no such message
    case JERR_ARITH_NOTIMPL:
#endif
    case JERR_NOT_COMPILED:
      leave(info, JpegState::unsupported);
    case JERR_IMAGE_TOO_BIG:
      leave(info, JpegState::too_large);
    case JERR_OUT_OF_MEMORY:
    case JERR_NO_BACKING_STORE:
      leave(info, JpegState::no_memory);
    default:
      leave(info, JpegState::damaged);
  }
}

void on_message(j_common_ptr, int) {}  // warnings: decoders go on, as Pillow does
void on_output(j_common_ptr) {}
void on_source(j_decompress_ptr) {}

boolean on_empty(j_decompress_ptr info) {
  leave(reinterpret_cast<j_common_ptr>(info), JpegState::truncated);
}

void on_skip(j_decompress_ptr info, long count) {
  if (count <= 0) return;
  if (static_cast<size_t>(count) > info->src->bytes_in_buffer) on_empty(info);
  info->src->next_input_byte += count;
  info->src->bytes_in_buffer -= static_cast<size_t>(count);
}

void on_progress(j_common_ptr info) {
  const auto* decompress = reinterpret_cast<j_decompress_ptr>(info);
  if (decompress->input_scan_number > kScansMax) leave(info, JpegState::damaged);
  if (context_of(info).clock->expired()) leave(info, JpegState::late);
}

class JpegReader {
 public:
  explicit JpegReader(const DecodeClock& clock) {
    context_.clock = &clock;
    info_.err = jpeg_std_error(&context_.errors);
    context_.errors.error_exit = on_error;
    context_.errors.emit_message = on_message;
    context_.errors.output_message = on_output;
    context_.source.init_source = on_source;
    context_.source.fill_input_buffer = on_empty;
    context_.source.skip_input_data = on_skip;
    context_.source.resync_to_restart = jpeg_resync_to_restart;
    context_.source.term_source = on_source;
    context_.progress.progress_monitor = on_progress;
  }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;
  ~JpegReader() { jpeg_destroy_decompress(&info_); }

  JpegState read_header(ImageBytes bytes) {
    info_.client_data = &context_;
    if (setjmp(context_.out)) return context_.state;
    jpeg_create_decompress(&info_);  // keeps err and client_data
    context_.source.next_input_byte = reinterpret_cast<const JOCTET*>(bytes.data());
    context_.source.bytes_in_buffer = bytes.size();
    info_.src = &context_.source;
    info_.progress = &context_.progress;
    jpeg_read_header(&info_, TRUE);
    return JpegState::fine;
  }

  /// Decodes all scans of a progressive file into coefficients.
  JpegState start() {
    if (setjmp(context_.out)) return context_.state;
    info_.mem->max_memory_to_use =
        (int64_t{info_.image_width} + 64) * (int64_t{info_.image_height} + 64) * 8 + kWorkBytes;
    if (info_.num_components == 4) info_.out_color_space = JCS_CMYK;
    if (info_.num_components == 3) info_.out_color_space = JCS_RGB;
    if (info_.num_components == 1) info_.out_color_space = JCS_GRAYSCALE;
    jpeg_start_decompress(&info_);
    return JpegState::fine;
  }

  JpegState read_row(uint8_t* row) {
    if (setjmp(context_.out)) return context_.state;
    JSAMPROW rows[1] = {row};
    jpeg_read_scanlines(&info_, rows, 1);
    return JpegState::fine;
  }

  ImageSize size() const {
    return {.width = static_cast<int>(info_.image_width),
            .height = static_cast<int>(info_.image_height)};
  }
  int components() const { return info_.num_components; }

 private:
  JpegContext context_;
  jpeg_decompress_struct info_ = {};
};

Error jpeg_error(JpegState state, const DecodeClock& clock) {
  switch (state) {
    case JpegState::late:
      return clock.error();
    case JpegState::unsupported:
      return unsupported_image("JPEG", "8 bits, baseline or progressive", "another kind");
    case JpegState::too_large:
      return make_error(ErrorCode::invalid_argument,
                        {"JPEG image", concat("edges of at most ", JPEG_MAX_DIMENSION, " pixels"),
                         "a longer one", "send a smaller image"});
    case JpegState::no_memory:
      return short_of_memory();
    case JpegState::truncated:
      return damaged_image("JPEG", Damage::truncated);
    default:
      return damaged_image("JPEG", Damage::data);
  }
}

Result<void> check_components(const JpegReader& reader) {
  const int count = reader.components();
  if (count == 1 || count == 3 || count == 4) return {};
  return unsupported_image("JPEG", "1, 3 or 4 components", concat(count));
}

void widen_grey(uint8_t* row, int width) {
  for (int x = width - 1; x >= 0; --x) row[3 * x] = row[3 * x + 1] = row[3 * x + 2] = row[x];
}

/// Pillow takes every CMYK file as inverted, as Adobe writes it; and its conversion to RGB.
void cmyk_to_rgb(const uint8_t* in, uint8_t* out, int width) {
  for (int x = 0; x < width; ++x, in += 4, out += 3)
    for (int c = 0; c < 3; ++c) {
      const int product = (255 - in[c]) * in[3] + 128;
      out[c] = static_cast<uint8_t>(in[3] - ((product + (product >> 8)) >> 8));
    }
}

}  // namespace

Result<ImageSize> jpeg_size(ImageBytes bytes, const DecodeClock& clock) {
  JpegReader reader(clock);
  const JpegState state = reader.read_header(bytes);
  if (state != JpegState::fine) return jpeg_error(state, clock);
  TRY(check_components(reader));
  return reader.size();
}

Result<RgbImage> decode_jpeg(ImageBytes bytes, const ImageSize& size, const DecodeClock& clock) {
  JpegReader reader(clock);
  JpegState state = reader.read_header(bytes);
  if (state != JpegState::fine) return jpeg_error(state, clock);
  TRY(check_components(reader));
  state = reader.start();
  if (state != JpegState::fine) return jpeg_error(state, clock);
  CHECK(reader.size() == size, size.width, " x ", size.height);
  RgbImage image = make_image(size);
  std::vector<uint8_t> inks(reader.components() == 4 ? size_t{4} * size.width : 0);
  for (int y = 0; y < size.height; ++y) {
    if (clock.expired()) return clock.error();
    uint8_t* row = image.pixels.data() + size_t{3} * size.width * y;
    state = reader.read_row(inks.empty() ? row : inks.data());
    if (state != JpegState::fine) return jpeg_error(state, clock);
    if (!inks.empty()) cmyk_to_rgb(inks.data(), row, size.width);
    if (reader.components() == 1) widen_grey(row, size.width);
  }
  return image;
}

}  // namespace nibble
