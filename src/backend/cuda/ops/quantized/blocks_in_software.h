// Products as tensor memory makes them (sm100/products_sm100.h), by software from the same
// operands in the same order and, of experts, from the same arguments: so that everything around
// those kernels runs on other cards, in tests. Slow.
//   Oracle: products in double (checks/blocks_check.cu, checks/expert_products_check.cu).
#pragma once

#include "backend/cuda/ops/quantized/quantized_gemm.h"

namespace nibble::cuda {

void multiply_blocks(const QuantizedGemm& gemm, const Launcher& launcher);

}  // namespace nibble::cuda
