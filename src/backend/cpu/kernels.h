// KernelTable: the inner loops, compiled once per instruction set from the same source (*.inl) and
// chosen at run time. Plain data only: the files compiled with special flags include this, and an
// inline function from here could otherwise be linked into code that must run everywhere.
//
// Every kernel gives the same bits on every instruction set and for every split of the work: an
// output element is one fixed-order reduction that does not depend on other elements.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/kv_format.h"

namespace nibble::cpu {

constexpr int kPanelRows = 16;     // weight rows of one panel, one per SIMD lane
constexpr int kRowsDirectMax = 4;  // up to here weights are decoded in registers
/// Rows as their file stores them are a whole number of such pieces long.
constexpr int kStoredRowBytes = 128;

/// The forms in which a packed panel stores its 16 rows; Kp is K rounded up to 16, padded with
/// zeros.
///   f32        [Kp][16] float
///   bf16       [Kp/2][16] words: even column in the low half
///   fp8        [Kp/4][16] words: four E4M3 codes, first column lowest
///   fp8_block  as fp8, with one F32 scale per 128 columns: scales [ceil(K/128)]
///   nvfp4      [Kp/8][16] words: eight E2M1 codes, first column lowest, E4M3 scales [Kp/16][16]
enum class PanelFormat : uint8_t { f32, bf16, fp8, fp8_block, nvfp4 };

/// Rows x [M, Kp] times the panels of one weight. The reduction of an element runs over k in order,
/// one FMA per column; fp8_block and nvfp4 reduce each scale group of code values first, then add
/// it to the sum with one FMA by the scale. Last, the sum is multiplied by the row's final scale.
struct LinearPanels {
  PanelFormat format = PanelFormat::f32;
  int64_t k_padded = 0;
  const std::byte* panels = nullptr;
  int64_t panel_bytes = 0;
  const std::byte* scales = nullptr;
  int64_t scale_bytes = 0;             // of one panel
  const float* final_scale = nullptr;  // [panels * 16], or null for f32 and bf16
  int64_t rows = 0;                    // N, of the whole weight
  /// The values, and the scales of NVFP4, are 16 rows one after the other in place of panels, as
  /// files store them. Then N and K are such that no panel has padding.
  bool stored = false;
  /// The panels that are read after the last one, which may be fetched to a cache; or null.
  const std::byte* panels_after = nullptr;
  const std::byte* scales_after = nullptr;

  int64_t panel_begin = 0;  // the panels to compute
  int64_t panel_end = 0;
  const float* x = nullptr;  // [M, x_stride], zeros in columns K..Kp-1
  int64_t x_stride = 0;
  int64_t x_rows = 0;  // M
  float* y = nullptr;  // [M, y_stride], columns as weight rows
  int64_t y_stride = 0;
  bool add = false;  // y += instead of y =

  // In place of x for linear_low: rows as quantize_row or round_row wrote them.
  const std::byte* low_x = nullptr;
  int64_t low_stride = 0;  // bytes, a multiple of 4
  /// The rows of low_x that are the inputs, [M], or null: its first M.
  const int32_t* low_rows = nullptr;
};

/// True for weights with few bits, which linear_low multiplies.
constexpr bool have_low_activations(PanelFormat format) {
  return format == PanelFormat::nvfp4 || format == PanelFormat::fp8 ||
         format == PanelFormat::fp8_block;
}
/// Bytes from one row of linear_low to the next. Rows that were a whole number of pages long would
/// meet in the same places of the first cache.
constexpr int64_t low_row_bytes(PanelFormat format, int64_t k_padded) {
  const int64_t bytes = format == PanelFormat::nvfp4 ? k_padded * 3 / 2 : k_padded * 2;
  return bytes % 4096 == 0 ? bytes + 64 : bytes;
}

/// Gated delta rule of one value head over adjacent rows. Shapes: model.md 2.4.5.
struct DeltaHead {
  int rows = 0;
  int k_dim = 0;
  int v_dim = 0;
  const float* q = nullptr;  // normalised and scaled; row r at q + r * qkv_stride
  const float* k = nullptr;
  const float* v = nullptr;
  int64_t qkv_stride = 0;
  const float* alpha = nullptr;  // row r at alpha + r * gate_stride
  const float* beta = nullptr;
  int64_t gate_stride = 0;
  float* out = nullptr;  // row r at out + r * out_stride
  int64_t out_stride = 0;
  float* state = nullptr;  // [k_dim, v_dim], updated
};

/// One tile of queries that share a KV head and a page table.
struct AttentionTile {
  int queries = 0;  // 1..KernelTable::queries_per_tile
  int head_dim = 0;
  float scale = 1.0F;
  const float* q[8] = {};   // [head_dim]
  float* out[8] = {};       // [head_dim]
  int32_t visible[8] = {};  // keys a query sees: indices first_key .. visible-1
  int32_t first_key = 0;    // 0 or 1
  KvFormat format = KvFormat::f32;
  const int32_t* pages = {};    // page ids
  const std::byte* cache = {};  // page p begins at cache + p * page_stride
  int64_t page_stride = 0;      // bytes, as the offsets
  int64_t k_offset = 0;         // in a page: keys transposed, [head_dim, 64]; pools.h
  int64_t v_offset = 0;         // in a page: values, [64, head_dim]
};

/// y = x * rsqrt(mean(x^2) + eps) * w; x and y may be the same.
struct NormRow {
  const float* x = nullptr;
  const float* w = nullptr;  // the 1 of a zero-centred norm is already added
  float* y = nullptr;
  int n = 0;
  float eps = 0.0F;
};

struct KernelTable {
  const char* isa;
  int queries_per_tile;

  void (*linear)(const LinearPanels& args);
  /// It multiplies activations with few bits, of formats that have_low_activations(): x is low_x.
  void (*linear_low)(const LinearPanels& args);
  /// One row of k_padded values for linear_low: with nvfp4 weights int8 codes, scales and offsets,
  /// 3/2 k_padded bytes; with FP8 weights BF16, 2 k_padded bytes.
  void (*quantize_row)(const float* x, int64_t k_padded, std::byte* out);
  void (*round_row)(const float* x, int64_t k_padded, std::byte* out);
  /// Row `lane` of one panel as F32 [k_padded], scales and final scale applied.
  void (*unpack_row)(const LinearPanels& args, int64_t row, float* out);

  void (*rms_norm)(const NormRow& row);
  /// y = (x - mean) * rsqrt(variance + eps) * w + bias.
  void (*layer_norm)(const NormRow& row, const float* bias);
  /// y += bias.
  void (*add_bias)(float* y, const float* bias, int n);
  /// y = gelu(y + bias), by tanh and by erf.
  void (*gelu_tanh)(float* y, const float* bias, int n);
  void (*gelu_exact)(float* y, const float* bias, int n);
  /// y = rms_norm(x) * silu(z).
  void (*gated_norm)(const NormRow& row, const float* z);
  /// x *= scale * rsqrt(sum(x^2) + eps).
  void (*l2_norm)(float* x, int n, float eps, float scale);
  /// y = silu(gate) * up.
  void (*swiglu)(const float* gate, const float* up, float* y, int n);
  /// y *= sigmoid(gate).
  void (*sigmoid_gate)(float* y, const float* gate, int n);
  /// y = silu(sum_j w[j] * x[j]), taps oldest first; w is [taps][n].
  void (*conv_silu)(const float* const* x, const float* w, int taps, float* y, int n);
  /// y += sum_j weight[j] * x[j], the sum made first and in order.
  void (*add_weighted)(float* y, const float* const* x, const float* weight, int count, int n);
  /// p = softmax(x).
  void (*softmax)(const float* x, float* p, int n);
  void (*delta_rule)(const DeltaHead& head);
  void (*attention)(const AttentionTile& tile);
};

const KernelTable& scalar_kernels();
const KernelTable& avx2_kernels();
const KernelTable& avxvnni_kernels();
const KernelTable& avx512_kernels();
const KernelTable& neon_kernels();
const KernelTable& i8mm_kernels();

}  // namespace nibble::cpu
