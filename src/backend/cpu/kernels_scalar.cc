// The kernels for portable C++ (and what the compiler makes of it). Compiled with its own flags
// (CMakeLists.txt), so it includes nothing with inline functions of external linkage.
#include "backend/cpu/kernels.h"
#include "backend/cpu/low_scalar.h"
#include "backend/cpu/simd_scalar.h"

// The kernels are written on the names of those headers.
#include "backend/cpu/kernel_table.inl"

namespace nibble::cpu {
const KernelTable& scalar_kernels() { return kTable; }
}  // namespace nibble::cpu
