// Products of NVFP4 codes on compute capability 10 (tcgen05.mma with block scales), as
// quantized_gemm.h has them, of matrices in CodeOrder::blocks. Never run on such a card. What
// differs:
//   - swiglu is two products in place: y = bf16(x Wup^T), then y = bf16(silu(x Wgate^T) * y). So
//     up is rounded to BF16 once more. Both matrices are in CodeOrder::paired_blocks, and y is in
//     packed order.
//   - y is 16-byte aligned and its stride a multiple of 16 bytes.
//   - x has its scales in blocks.
// In a build without code for compute capability 10 absent_sm100.cc stands for them.
#pragma once

#include "backend/cuda/ops/quantized/quantized_gemm.h"

namespace nibble::cuda {

// These raise the limits of shared memory of all kernels, once per device.
void prepare_linear_sm100(const Launcher& launcher);
void prepare_experts_sm100(const Launcher& launcher);

/// `tokens`: rows of x in a tile, kSm100FewTokens or kSm100ManyTokens.
void linear_sm100(const QuantizedGemm& gemm, int tokens, const Launcher& launcher);
/// The same of experts, whose rows gemm.experts.groups has; kSm100FewTokens or kSm100ExpertTokens.
/// Rows of x have no factors, and `add` is no output.
void experts_sm100(const QuantizedGemm& gemm, int tokens, const Launcher& launcher);

}  // namespace nibble::cuda
