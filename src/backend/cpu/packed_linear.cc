// Lays a weight out in panels of 16 rows, all at once or some rows at a time.
#include "backend/cpu/packed_linear.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "backend/cpu/interleave.h"
#include "base/mapped_file.h"
#include "model/weights/sound_weights.h"
#include "tensor/fp8.h"
#include "tensor/nvfp4.h"

namespace nibble::cpu {
namespace {

PanelFormat format_of(WeightFormat weights, DType stored) {
  switch (weights) {
    case WeightFormat::plain:
      return stored == DType::bf16 ? PanelFormat::bf16 : PanelFormat::f32;
    case WeightFormat::nvfp4:
      return PanelFormat::nvfp4;
    case WeightFormat::fp8_tensor:
    case WeightFormat::fp8_channel:
      return PanelFormat::fp8;
    case WeightFormat::fp8_block:
      return PanelFormat::fp8_block;
  }
  return PanelFormat::f32;
}

int bits_of(PanelFormat format) {
  switch (format) {
    case PanelFormat::f32:
      return 32;
    case PanelFormat::bf16:
      return 16;
    case PanelFormat::fp8:
    case PanelFormat::fp8_block:
      return 8;
    case PanelFormat::nvfp4:
      return 4;
  }
  return 0;
}

/// The values of `rows` as F32; those that are stored so keep their memory.
const std::byte* as_f32(const LinearWeight& rows, std::vector<float>& widened) {
  const TensorView view = rows.values.view();
  if (view.dtype == DType::f32) return view.data;
  widened.resize(static_cast<size_t>(rows.rows * rows.cols));
  decode_plain(view.data, view.dtype, rows.rows * rows.cols, widened.data());
  return reinterpret_cast<const std::byte*>(widened.data());
}

}  // namespace

PackedLinear::PackedLinear(const LinearSource& source, DType stored)
    : module_(source.module),
      rows_(source.rows),
      cols_(source.cols),
      format_(format_of(source.scheme.weights, stored)),
      activations_(source.scheme.activations),
      panel_bytes_(k_padded() * kPanelRows * bits_of(format_) / 8) {
  if (format_ == PanelFormat::nvfp4) scale_bytes_ = k_padded();
  if (format_ == PanelFormat::fp8_block)
    scale_bytes_ = (cols_ + kFp8Block - 1) / kFp8Block * int64_t{sizeof(float)};
  const bool kept = format_ != PanelFormat::f32 || stored == DType::f32;
  reads_stored_ =
      kept && rows_ % kPanelRows == 0 && cols_ * bits_of(format_) % (8 * kStoredRowBytes) == 0;
}

int64_t PackedLinear::stored_bytes() const {
  return panels() * (panel_bytes_ + (format_ == PanelFormat::nvfp4 ? scale_bytes_ : 0));
}

int64_t PackedLinear::room() const {
  return WeightArena::room(panels() * panel_bytes_) + WeightArena::room(panels() * scale_bytes_) +
         WeightArena::room(final_scale_bytes());
}

void PackedLinear::place(WeightArena& arena) {
  panels_ = own_panels_ = arena.take(panels() * panel_bytes_).data();
  scales_ = own_scales_ = arena.take(panels() * scale_bytes_).data();
  if (scales_rows())
    final_scale_ = reinterpret_cast<float*>(arena.take(final_scale_bytes()).data());
}

void PackedLinear::place_stored(const std::byte* values, const std::byte* block_scales,
                                WeightArena& arena) {
  CHECK(reads_stored_, module_);
  stored_ = true;
  panels_ = values;
  scales_ = block_scales;
  if (format_ != PanelFormat::nvfp4)
    scales_ = own_scales_ = arena.take(panels() * scale_bytes_).data();
  if (scales_rows())
    final_scale_ = reinterpret_cast<float*>(arena.take(final_scale_bytes()).data());
}

void PackedLinear::want() const {
  if (!stored_) return;
  will_need({panels_, static_cast<size_t>(panels() * panel_bytes_)});
  if (format_ == PanelFormat::nvfp4)
    will_need({scales_, static_cast<size_t>(panels() * scale_bytes_)});
}

Result<void> PackedLinear::set_factors(const LinearWeight& factors) {
  input_scale_ = factors.input_scale;
  if (format_ == PanelFormat::nvfp4) {
    std::fill_n(final_scale_, rows_, factors.global_scale.apply(1.0F));
    return {};
  }
  if (factors.scales.bytes() == 0) return {};
  TRY(check_sound(factors));
  const auto* from = factors.scales.as<float>();
  if (format_ == PanelFormat::fp8_block) {
    spread_block_scales(from);
  } else if (factors.scheme.weights == WeightFormat::fp8_channel) {
    std::copy_n(from, rows_, final_scale_);
  } else {
    std::fill_n(final_scale_, rows_, from[0]);
  }
  return {};
}

/// A panel of 16 rows lies inside one band of 128.
void PackedLinear::spread_block_scales(const float* from) {
  for (int64_t p = 0; p < panels(); ++p) {
    const int64_t band = p * kPanelRows / kFp8Block;
    std::memcpy(own_scales_ + p * scale_bytes_,
                reinterpret_cast<const std::byte*>(from) + band * scale_bytes_,
                static_cast<size_t>(scale_bytes_));
  }
}

Result<void> PackedLinear::pack_rows(const LinearWeight& rows, int64_t row_begin) {
  CHECK(!stored_ && row_begin % kPanelRows == 0 && row_begin + rows.rows <= rows_, "rows ",
        row_begin, " + ", rows.rows, " of ", rows_);
  TRY(check_sound(rows));
  std::vector<float> widened;
  const std::byte* values =
      format_ == PanelFormat::f32 ? as_f32(rows, widened) : rows.values.view().data;
  const int64_t row_bytes = cols_ * bits_of(format_) / 8;
  const int64_t groups = cols_ / kNvfp4Group;
  for (int64_t row = 0; row < rows.rows; row += kPanelRows) {
    const auto lanes = static_cast<int>(std::min<int64_t>(kPanelRows, rows.rows - row));
    const int64_t panel = (row_begin + row) / kPanelRows;
    interleave_words({.first = values + row * row_bytes, .bytes = row_bytes, .count = lanes},
                     own_panels_ + panel * panel_bytes_);
    if (format_ != PanelFormat::nvfp4) continue;
    interleave_bytes(
        {.first = rows.scales.view().data + row * groups, .bytes = groups, .count = lanes},
        own_scales_ + panel * scale_bytes_);
  }
  return {};
}

namespace {

PackedLinear layout_of(const LinearWeight& weight) {
  LinearSource source;
  source.module = weight.module;
  source.rows = weight.rows;
  source.cols = weight.cols;
  source.scheme = weight.scheme;
  return {source, weight.values.dtype()};
}

}  // namespace

Result<PackedLinear> PackedLinear::pack(const LinearWeight& weight) {
  PackedLinear packed = layout_of(weight);
  WeightArena arena = TRY(WeightArena::reserve(packed.room()));
  packed.place(arena);
  packed.own_ = std::move(arena);
  TRY(packed.set_factors(weight));
  TRY(packed.pack_rows(weight, 0));
  return packed;
}

Result<PackedLinear> PackedLinear::over(const LinearWeight& weight) {
  PackedLinear packed = layout_of(weight);
  WeightArena arena = TRY(WeightArena::reserve(packed.room() - packed.stored_bytes()));
  packed.place_stored(weight.values.view().data, weight.scales.view().data, arena);
  packed.own_ = std::move(arena);
  TRY(packed.set_factors(weight));
  TRY(check_sound(weight));
  return packed;
}

LinearPanels PackedLinear::view() const {
  return {.format = format_,
          .k_padded = k_padded(),
          .panels = panels_,
          .panel_bytes = panel_bytes_,
          .scales = scales_,
          .scale_bytes = scale_bytes_,
          .final_scale = final_scale_,
          .rows = rows_,
          .stored = stored_};
}

}  // namespace nibble::cpu
