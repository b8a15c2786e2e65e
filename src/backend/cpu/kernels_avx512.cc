// The kernels for AVX-512 F, BW, VL, DQ, VNNI, BF16 and VBMI. Compiled with its own flags
// (CMakeLists.txt), so it includes nothing with inline functions of external linkage.
#include "backend/cpu/kernels.h"
#include "backend/cpu/low_avx512.h"
#include "backend/cpu/simd_avx512.h"
#include "backend/cpu/stored_avx512.h"

// The kernels are written on the names of those headers.
#include "backend/cpu/kernel_table.inl"
#include "backend/cpu/low_stored.inl"

namespace nibble::cpu {
const KernelTable& avx512_kernels() { return kTable; }
}  // namespace nibble::cpu
