// x86-64: what CPUID and the operating system's register state allow.
#include <cpuid.h>

#include "backend/cpu/isa.h"

namespace nibble::cpu {
namespace {

/// Not every compiler has a name for it: bit 4 of EAX of leaf 7.1.
bool has_avx_vnni() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax >> 4 & 1U) != 0;
}

}  // namespace

std::vector<const KernelTable*> usable_kernels() {
  std::vector<const KernelTable*> tables;
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vnni") &&
                      __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vbmi");
  if (avx2 && avx512) tables.push_back(&avx512_kernels());
  if (avx2 && has_avx_vnni()) tables.push_back(&avxvnni_kernels());
  if (avx2) tables.push_back(&avx2_kernels());
  tables.push_back(&scalar_kernels());
  return tables;
}

}  // namespace nibble::cpu
