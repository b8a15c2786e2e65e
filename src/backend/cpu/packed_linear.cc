// Repacks a loaded weight into panels of 16 rows.
#include "backend/cpu/packed_linear.h"

#include <algorithm>
#include <cstring>

#include "model/weights/sound_weights.h"
#include "tensor/fp8.h"
#include "tensor/nvfp4.h"

namespace nibble::cpu {
void PackedLinear::allocate(int64_t panel_bytes, int64_t scale_bytes) {
  panel_bytes_ = panel_bytes;
  scale_bytes_ = scale_bytes;
  panels_ = Buffer(panels() * panel_bytes);
  std::memset(panels_.data(), 0, static_cast<size_t>(panels_.bytes()));
  scales_ = Buffer(panels() * scale_bytes);
  std::fill_n(scales_.data(), scales_.bytes(), std::byte{0});
}

float* PackedLinear::allocate_final_scale() {
  final_scale_ = Buffer(panels() * kPanelRows * int64_t{sizeof(float)});
  auto* scale = reinterpret_cast<float*>(final_scale_.data());
  std::fill_n(scale, panels() * kPanelRows, 0.0F);
  return scale;
}

void PackedLinear::pack_f32(const LinearWeight& weight) {
  format_ = PanelFormat::f32;
  allocate(k_padded() * kPanelRows * int64_t{sizeof(float)}, 0);
  std::vector<float> row(static_cast<size_t>(cols_));
  for (int64_t n = 0; n < rows_; ++n) {
    const std::byte* from = weight.values.view().data;
    const DType dtype = weight.values.dtype();
    decode_plain(from + dtype_bytes(dtype, n * cols_), dtype, cols_, row.data());
    auto* to =
        reinterpret_cast<float*>(panels_.data() + n / kPanelRows * panel_bytes_) + n % kPanelRows;
    for (int64_t k = 0; k < cols_; ++k) to[k * kPanelRows] = row[static_cast<size_t>(k)];
  }
}

void PackedLinear::pack_bf16(const LinearWeight& weight) {
  format_ = PanelFormat::bf16;
  allocate(k_padded() * kPanelRows * 2, 0);
  for (int64_t n = 0; n < rows_; ++n) {
    const uint16_t* from = weight.values.as<uint16_t>() + n * cols_;
    auto* to = reinterpret_cast<uint16_t*>(panels_.data() + n / kPanelRows * panel_bytes_) +
               n % kPanelRows * 2;
    for (int64_t k = 0; k < cols_; ++k) to[k / 2 * kPanelRows * 2 + k % 2] = from[k];
  }
}

void PackedLinear::pack_fp8(const LinearWeight& weight) {
  const bool block = weight.scheme.weights == WeightFormat::fp8_block;
  format_ = block ? PanelFormat::fp8_block : PanelFormat::fp8;
  const int64_t groups = (cols_ + kFp8Block - 1) / kFp8Block;
  allocate(k_padded() * kPanelRows, block ? groups * int64_t{sizeof(float)} : 0);
  for (int64_t n = 0; n < rows_; ++n) {
    const uint8_t* from = weight.values.as<uint8_t>() + n * cols_;
    auto* to = reinterpret_cast<uint8_t*>(panels_.data() + n / kPanelRows * panel_bytes_) +
               n % kPanelRows * 4;
    for (int64_t k = 0; k < cols_; ++k) to[k / 4 * kPanelRows * 4 + k % 4] = from[k];
  }
  pack_fp8_scales(weight);
}

void PackedLinear::pack_fp8_scales(const LinearWeight& weight) {
  const auto* from = weight.scales.as<float>();
  if (format_ == PanelFormat::fp8_block) {
    // A panel of 16 rows lies inside one band of 128.
    for (int64_t p = 0; p < panels(); ++p) {
      const int64_t band = p * kPanelRows / kFp8Block;
      std::memcpy(scales_.data() + p * scale_bytes_,
                  reinterpret_cast<const std::byte*>(from) + band * scale_bytes_,
                  static_cast<size_t>(scale_bytes_));
    }
    return;
  }
  const bool per_row = weight.scheme.weights == WeightFormat::fp8_channel;
  float* to = allocate_final_scale();
  for (int64_t n = 0; n < rows_; ++n) to[n] = from[per_row ? n : 0];
}

void PackedLinear::pack_nvfp4(const LinearWeight& weight, const KernelTable& kernels) {
  format_ = PanelFormat::nvfp4;
  allocate(k_padded() * kPanelRows / 2, k_padded());
  for (int64_t p = 0; p < panels(); ++p) {
    const auto lanes = static_cast<int>(std::min<int64_t>(kPanelRows, rows_ - p * kPanelRows));
    const uint8_t* rows = weight.values.as<uint8_t>() + p * kPanelRows * cols_ / 2;
    auto* to = reinterpret_cast<uint8_t*>(panels_.data() + p * panel_bytes_);
    for (int64_t k = 0; k < cols_; k += 8, to += 64) {
      uint8_t code[8][kPanelRows] = {};
      for (int lane = 0; lane < lanes; ++lane) {
        const uint8_t* from = rows + lane * cols_ / 2 + k / 2;
        for (int i = 0; i < 4; ++i) {
          code[2 * i][lane] = from[i] & 15U;
          code[2 * i + 1][lane] = static_cast<uint8_t>(from[i] >> 4);
        }
      }
      const auto at = [&](int slot) -> unsigned {
        const uint8_t place = kernels.nvfp4_slots[slot];
        return code[place >> 4][place & 15U];
      };
      for (int byte = 0; byte < 64; ++byte)
        to[byte] = static_cast<uint8_t>(at(2 * byte) | at(2 * byte + 1) << 4);
    }
  }
  pack_nvfp4_scales(weight);
}

void PackedLinear::pack_nvfp4_scales(const LinearWeight& weight) {
  const int64_t groups = cols_ / kNvfp4Group;
  const GlobalScale global = weight.global_scale;
  float* final_scale = allocate_final_scale();
  for (int64_t n = 0; n < rows_; ++n) {
    const uint8_t* from = weight.scales.as<uint8_t>() + n * groups;
    auto* to =
        reinterpret_cast<uint8_t*>(scales_.data() + n / kPanelRows * scale_bytes_) + n % kPanelRows;
    for (int64_t g = 0; g < groups; ++g) to[g * kPanelRows] = from[g];
    final_scale[n] = global.apply(1.0F);
  }
}

Result<PackedLinear> PackedLinear::pack(const LinearWeight& weight, const KernelTable& kernels) {
  TRY(check_sound(weight));
  PackedLinear packed;
  packed.module_ = weight.module;
  packed.rows_ = weight.rows;
  packed.cols_ = weight.cols;
  packed.activations_ = weight.scheme.activations;
  packed.input_scale_ = weight.input_scale;
  switch (weight.scheme.weights) {
    case WeightFormat::plain:
      if (weight.values.dtype() == DType::bf16) {
        packed.pack_bf16(weight);
      } else {
        packed.pack_f32(weight);
      }
      break;
    case WeightFormat::nvfp4:
      packed.pack_nvfp4(weight, kernels);
      break;
    case WeightFormat::fp8_tensor:
    case WeightFormat::fp8_channel:
    case WeightFormat::fp8_block:
      packed.pack_fp8(weight);
      break;
  }
  return packed;
}

LinearPanels PackedLinear::view() const {
  return {.format = format_,
          .k_padded = k_padded(),
          .panels = panels_.data(),
          .panel_bytes = panel_bytes_,
          .scales = scales_.data(),
          .scale_bytes = scale_bytes_,
          .final_scale = reinterpret_cast<const float*>(final_scale_.data()),
          .rows = rows_};
}

}  // namespace nibble::cpu
