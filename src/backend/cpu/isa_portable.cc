// Any other processor: the portable kernels.
#include "backend/cpu/isa.h"

namespace nibble::cpu {

std::vector<const KernelTable*> usable_kernels() { return {&scalar_kernels()}; }

}  // namespace nibble::cpu
