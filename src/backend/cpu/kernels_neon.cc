// The kernels for NEON with dot product (ARMv8.2). Compiled with its own flags (CMakeLists.txt), so
// it includes nothing with inline functions of external linkage.
#include "backend/cpu/kernels.h"
#include "backend/cpu/low_neon.h"
#include "backend/cpu/simd_neon.h"
// clang-format off
#include "backend/cpu/vector_kernels.inl"
#include "backend/cpu/linear_kernels.inl"
#include "backend/cpu/low_rows.inl"
#include "backend/cpu/low_direct.inl"
#include "backend/cpu/low_blocked.inl"
#include "backend/cpu/delta_kernel.inl"
#include "backend/cpu/kv_lines.inl"
#include "backend/cpu/attention_kernel.inl"
#include "backend/cpu/kernel_table.inl"
// clang-format on

namespace nibble::cpu {
const KernelTable& neon_kernels() { return kTable; }
}  // namespace nibble::cpu
