// 64-bit ARM: what the kernel says the processor has.
#include <sys/auxv.h>

#include "backend/cpu/isa.h"

namespace nibble::cpu {

std::vector<const KernelTable*> usable_kernels() {
  std::vector<const KernelTable*> tables;
  const bool dot_product = (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
  const bool matrices = (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0;
  if (dot_product && matrices) tables.push_back(&i8mm_kernels());
  if (dot_product) tables.push_back(&neon_kernels());
  tables.push_back(&scalar_kernels());
  return tables;
}

}  // namespace nibble::cpu
