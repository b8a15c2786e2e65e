// The table of one instruction set, and all kernels that it has. Included after the set's simd_*.h
// and low_*.h, which the kernels are written on.
// clang-format off
#include "backend/cpu/vector_kernels.inl"
#include "backend/cpu/panel_window.inl"
#include "backend/cpu/weight_formats.inl"
#include "backend/cpu/linear_kernels.inl"
#include "backend/cpu/low_rows.inl"
#include "backend/cpu/next_panels.inl"
#include "backend/cpu/low_direct.inl"
#include "backend/cpu/low_blocked.inl"
#include "backend/cpu/delta_kernel.inl"
#include "backend/cpu/kv_lines.inl"
#include "backend/cpu/attention_kernel.inl"
// clang-format on

namespace nibble::cpu {
namespace {

constexpr KernelTable kTable = {.isa = kIsaName,
                                .queries_per_tile = kQueriesPerTile,
                                .linear = linear,
                                .linear_low = linear_low,
                                .quantize_row = quantize_row,
                                .round_row = round_row,
                                .unpack_row = unpack_row,
                                .rms_norm = rms_norm,
                                .layer_norm = layer_norm,
                                .add_bias = add_bias,
                                .gelu_tanh = gelu_tanh,
                                .gelu_exact = gelu_exact,
                                .gated_norm = gated_norm,
                                .l2_norm = l2_norm,
                                .swiglu = swiglu,
                                .sigmoid_gate = sigmoid_gate,
                                .conv_silu = conv_silu,
                                .add_weighted = add_weighted,
                                .softmax = softmax,
                                .delta_rule = delta_rule,
                                .attention = attention};

}  // namespace
}  // namespace nibble::cpu
