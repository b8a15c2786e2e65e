// 64-bit ARM: what the kernel says the processor has.
#include <sys/auxv.h>

#include "backend/cpu/isa.h"

namespace nibble::cpu {

std::vector<const KernelTable*> usable_kernels() {
  std::vector<const KernelTable*> tables;
  if ((getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0) tables.push_back(&neon_kernels());
  tables.push_back(&scalar_kernels());
  return tables;
}

}  // namespace nibble::cpu
