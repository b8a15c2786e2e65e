// Weights and caches as kernels see them: plain pointers and sizes, passed by value. weight_store.h
// and device_pools.h own the memory.
//
// Layouts, all row-major, K padded with zeros to a multiple of kColumnPad:
//   bf16   values [N][K] BF16
//   fp8    values [N][K] E4M3 codes; factors F32 by FactorLayout
//   nvfp4  values [N][K/2] E2M1 codes; scales [N][K/16] E4M3;
//          factors [1]: w = code * scale * factor (always multiplies, whatever the file's
//          direction)
// Codes of values lie in their words as code_words.h says, unless CodeOrder has it otherwise.
// The experts of a layer are three such matrices with a leading expert axis: gate [E][F][D],
// up [E][F][D], down [E][D][F]; `factors` then has `factor_stride` floats per expert.
// With declared activations of a static scale (nvfp4: G, fp8_tensor), the factors are divided by G
// or multiplied by the scale, and the last of them is that number itself.
// An input of a linear is BF16 [T][K], its padding columns zero; with activations f32
// (f32_products.h) [T][kF32Parts][K], the numbers being the sums of the parts.
//
// KV page (BF16, E4M3 or F32), one contiguous block of `page_stride` bytes for all attention
// layers:
//   [attention layer][keys, values][kv head][64 tokens][head_dim]
// State slot, one contiguous block of `slot_stride` floats for all delta-net layers:
//   [layer][v head][k_dim][v_dim] F32 or BF16, then, F32, [layer][taps - 1][qkv_rows] raw inputs,
//   oldest first; with a layer that drafts the hidden row of the last token, F32 [hidden]; where
//   drafts are replayed, F32 [replay row]{[layer][raw qkv | a | b], hidden row} of saved rows
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/kv_format.h"
#include "tensor/quant_scheme.h"

namespace nibble::cuda {

inline constexpr int kColumnPad = 256;  // the columns one warp multiplies at a time

constexpr int64_t padded_columns(int64_t cols) {
  return (cols + kColumnPad - 1) / kColumnPad * kColumnPad;
}

/// BF16 numbers that add up to an F32 one: each is what rounding to those before it left.
inline constexpr int kF32Parts = 3;

enum class Format : uint8_t { bf16, fp8, nvfp4 };
enum class FactorLayout : uint8_t {
  none,     // bf16
  scalar,   // [1]
  row,      // [N]
  block128  // [ceil(N/128)][ceil(K_padded/128)]
};

/// These return the format of the values of a file's scheme on the device, and the layout of its
/// factors.
constexpr Format format_of(const QuantScheme& scheme) {
  switch (scheme.weights) {
    case WeightFormat::plain:
      return Format::bf16;
    case WeightFormat::nvfp4:
      return Format::nvfp4;
    default:
      return Format::fp8;
  }
}

constexpr FactorLayout layout_of(const QuantScheme& scheme) {
  switch (scheme.weights) {
    case WeightFormat::plain:
      return FactorLayout::none;
    case WeightFormat::fp8_channel:
      return FactorLayout::row;
    case WeightFormat::fp8_block:
      return FactorLayout::block128;
    default:
      return FactorLayout::scalar;
  }
}

/// The order of NVFP4 codes and scales. words: code_words.h, and scales row after row, as all
/// kernels but those of compute capability 10 read them. blocks: whole nibbles (e2m1_nibbles), and
/// scales in scale_blocks.h's order. paired_blocks: so too, and rows, 64 at a time, in packed order
/// (prefill_order.h), as gate and up have them. act_blocks: as blocks, of a matrix whose inputs
/// gate and up made, and therefore in packed order.
enum class CodeOrder : uint8_t { words, blocks, paired_blocks, act_blocks };

/// A DeviceLinear is one matrix [rows, cols], or a stack of them, one after the other without gaps.
struct DeviceLinear {
  Format format = Format::bf16;
  FactorLayout layout = FactorLayout::none;
  ActivationFormat activations = ActivationFormat::high;  // what inputs are rounded to before it
  InputScales input_scales = InputScales::amax;           // of NVFP4
  CodeOrder order = CodeOrder::words;
  const uint8_t* values = nullptr;
  const uint8_t* scales = nullptr;
  const float* factors = nullptr;
  int32_t rows = 0;
  int32_t cols = 0;           // padded
  int32_t factor_stride = 0;  // floats per matrix of a stack
  uint32_t rest_rows = 0;     // rows from one part of the values to the next (rest_of); 0: one part

  bool present() const { return values != nullptr; }
};
static_assert(sizeof(DeviceLinear) == 48);  // kernels take many

/// True if inputs are rounded under a number of the file.
constexpr bool has_input_scale(ActivationFormat activations) {
  return activations == ActivationFormat::nvfp4 || activations == ActivationFormat::fp8_tensor;
}
/// Returns the number of the file of matrix `index` of a stack.
constexpr float input_scale_of(const DeviceLinear& weight, int64_t index) {
  return weight.factors[(index + 1) * weight.factor_stride - 1];
}

/// Returns the bytes of `cols` columns of one row.
constexpr int64_t value_bytes(Format format, int64_t cols) {
  return format == Format::bf16 ? 2 * cols : format == Format::fp8 ? cols : cols / 2;
}

/// Part `index` of the values of F16 and F32 files under activations f32, kF32Parts matrices or
/// stacks that add up; not present where BF16 is all there is. Part 0 is the matrix itself.
constexpr DeviceLinear rest_of(const DeviceLinear& weight, int index) {
  if (index > 0 && weight.rest_rows == 0) return {};
  DeviceLinear part = weight;
  part.values += index * int64_t{weight.rest_rows} * value_bytes(weight.format, weight.cols);
  return part;
}

/// The keys and values of one attention layer: the 64 lines of (page, head) begin at byte
/// page * page_stride + head * 64 * kv_line_bytes(format, side, head_dim), first the numbers of all
/// lines, then the scales of all.
struct KvView {
  uint8_t* keys = nullptr;
  uint8_t* values = nullptr;
  int64_t page_stride = 0;  // bytes
  KvFormat format = KvFormat::bf16;
};

enum class StateFormat : uint8_t { f32, bf16 };
constexpr int64_t state_element_bytes(StateFormat format) {
  return format == StateFormat::bf16 ? 2 : 4;
}

/// One delta-net layer's part of the slots: element (v head, k, v) of a state is number
/// (v_head * k_dim + k) * v_dim + v of what begins slot * slot_stride floats after `state`; input j
/// (0 = oldest) of channel c is at conv[slot * slot_stride + j * qkv_rows + c]; number i of saved
/// row r is at saved[slot * slot_stride + r * saved_stride + i].
struct StateView {
  void* state = nullptr;
  float* conv = nullptr;
  float* saved = nullptr;
  int64_t slot_stride = 0;   // floats
  int64_t saved_stride = 0;  // floats
  StateFormat format = StateFormat::f32;
};

/// The hidden rows of the slots, F32 [hidden], with a layer that drafts: that of a slot's last
/// token at last[slot * slot_stride], that of saved row r at
/// saved[slot * slot_stride + r * saved_stride].
struct HiddenView {
  float* last = nullptr;
  float* saved = nullptr;
  int64_t slot_stride = 0;   // floats
  int64_t saved_stride = 0;  // floats
};

}  // namespace nibble::cuda
