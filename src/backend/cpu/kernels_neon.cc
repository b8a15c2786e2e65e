// The kernels for NEON with dot product (ARMv8.2). Compiled with its own flags (CMakeLists.txt), so
// it includes nothing with inline functions of external linkage.
#include "backend/cpu/kernels.h"
#include "backend/cpu/low_neon.h"
#include "backend/cpu/simd_neon.h"

// The kernels are written on the names of those headers.
#include "backend/cpu/kernel_table.inl"

namespace nibble::cpu {
const KernelTable& neon_kernels() { return kTable; }
}  // namespace nibble::cpu
