// The kernels for AVX2 and FMA. Compiled with its own flags (CMakeLists.txt), so it includes
// nothing with inline functions of external linkage.
#include "backend/cpu/kernels.h"
#include "backend/cpu/low_avx2.h"
#include "backend/cpu/simd_avx2.h"

// The kernels are written on the names of those headers.
#include "backend/cpu/kernel_table.inl"

namespace nibble::cpu {
const KernelTable& avx2_kernels() { return kTable; }
}  // namespace nibble::cpu
