// The kernels for NEON with dot product and products of 8-bit matrices (I8MM). Compiled with its
// own flags (CMakeLists.txt), so it includes nothing with inline functions of external linkage.
#include "backend/cpu/kernels.h"
#include "backend/cpu/low_neon.h"
#include "backend/cpu/simd_neon.h"

// The kernels are written on the names of those headers, and on each other.
// clang-format off
#include "backend/cpu/kernel_table.inl"
#include "backend/cpu/low_row_pairs.inl"
// clang-format on

namespace nibble::cpu {
namespace {

constexpr KernelTable i8mm_table() {
  KernelTable table = kTable;
  table.isa = "i8mm";
  table.linear_low = linear_low_by_pairs;
  return table;
}
constexpr KernelTable kI8mmTable = i8mm_table();

}  // namespace

const KernelTable& i8mm_kernels() { return kI8mmTable; }
}  // namespace nibble::cpu
