// This file stands for the kernels of sm100/ in a build without code for compute capability 10,
// where no matrix is in the order that they read.
#include "backend/cuda/ops/quantized/sm100/products_sm100.h"
#include "base/check.h"

namespace nibble::cuda {
namespace {

[[noreturn]] void refuse() { CHECK(false, "no kernels of compute capability 10"); }

}  // namespace

void prepare_linear_sm100(const Launcher&) { refuse(); }
void prepare_experts_sm100(const Launcher&) { refuse(); }
void linear_sm100(const QuantizedGemm&, int, const Launcher&) { refuse(); }
void experts_sm100(const QuantizedGemm&, int, const Launcher&) { refuse(); }

}  // namespace nibble::cuda
