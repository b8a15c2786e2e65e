// The instruction of fp4_mma.cuh alone, on the fragments of fp4_cases.h, and that of fp8_mma.cuh on
// those of fp8_cases.h: by which a card shows that its instructions are the ones that kernels were
// checked with. One warp for each case. Oracle:
// fp4_on_host, bit for bit in software (checks/fp4_proof_check.cu); the machine's
// own where all sums are exact.
#pragma once

#include <cstdint>

#include "backend/cuda/ops/quantized/fp8_cases.h"
#include "backend/cuda/runtime/launcher.h"

namespace nibble::cuda {

/// Writes what the instruction, or the software in its place (launcher.card.fp4), makes of cases
/// first, first + step and so on: sums[i] of case first + i * step. CHECKs that the card has one.
struct Fp4Trial {
  int32_t first = 0;
  int32_t step = 1;
  int32_t count = 0;
  Fp4Sums* sums = nullptr;  // [count]
};
void multiply_fragments(const Fp4Trial& trial, const Launcher& launcher);

/// The differences of all cases from the software on the device.
struct Fp4Differences {
  uint64_t sums = 0;       // whose bits are not those of the software; of `any` those that lie too
                           // far from it, or whose bits differ while software is tried
  int32_t first_case = 0;  // the lowest that has one, if there are any
};
/// Compares all cases of the instruction, or of the software in its place, with the software and
/// adds to *found, which lies on the device and begins as {0, fp4_cases()}.
void compare_fragments(Fp4Differences* found, Fp4Fault fault, const Launcher& launcher);
/// The same of the instruction for E4M3 numbers, whose case n counts as fp4_cases() + n. Nothing
/// where the card has none; faults of scales have no place there.
void compare_fp8_fragments(Fp4Differences* found, Fp4Fault fault, const Launcher& launcher);

}  // namespace nibble::cuda
