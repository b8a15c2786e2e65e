// The operands with which a card is tried on the instruction for 4-bit codes, as functions of a
// number, for host and device: all 16 x 16 pairs of codes, all scale bytes of each group and side,
// random codes under scales of 1, of powers of two and of any number, each with every pair of
// lanes that can give scales. Nothing here computes products.
#pragma once

#include "backend/cuda/ptx/fp4_fragments.h"

namespace nibble::cuda {

inline constexpr int kFp4Selectors = kFp4LeftThreads * kFp4RightThreads;
inline constexpr uint32_t kFp4One = 0x38;  // the scale 1

/// The kinds of operands. Sums of all but `any` are exact in F32, in whatever order they are made.
enum class Fp4CaseKind : uint8_t { pairs, integers, scale_bytes, powers, any };
inline constexpr int kFp4CaseKinds = 5;
/// The number of operands of a kind, before selectors.
NIBBLE_FP4 constexpr int fp4_case_count(Fp4CaseKind kind) {
  switch (kind) {
    case Fp4CaseKind::pairs:
      return 16 * 16;
    case Fp4CaseKind::scale_bytes:
      return 2 * 4 * 256;  // sides, groups, bytes
    case Fp4CaseKind::any:
      return 256;
    default:
      return 64;
  }
}

struct Fp4Case {
  Fp4CaseKind kind = Fp4CaseKind::pairs;
  int index = 0;     // below fp4_case_count(kind)
  int selector = 0;  // 4 thread-id-a + thread-id-b
};
/// The number of all cases: a multiple of kFp4Selectors.
NIBBLE_FP4 constexpr int fp4_cases() {
  int count = 0;
  for (int kind = 0; kind < kFp4CaseKinds; ++kind)
    count += fp4_case_count(static_cast<Fp4CaseKind>(kind));
  return count * kFp4Selectors;
}
/// Case `number`; its selector is number % kFp4Selectors.
NIBBLE_FP4 constexpr Fp4Case fp4_case(int number) {
  int index = number / kFp4Selectors;
  int kind = 0;
  while (index >= fp4_case_count(static_cast<Fp4CaseKind>(kind)))
    index -= fp4_case_count(static_cast<Fp4CaseKind>(kind++));
  return {static_cast<Fp4CaseKind>(kind), index, number % kFp4Selectors};
}

/// Random bits of a case: the finalizer of MurmurHash3 on its numbers.
NIBBLE_FP4 constexpr uint32_t fp4_random(const Fp4Case& of, uint32_t what, int lane) {
  uint32_t x = 0x9E3779B9U * (static_cast<uint32_t>(of.index) * 8U + of.selector + 1U) +
               0x85EBCA77U * (static_cast<uint32_t>(of.kind) + 1U) + 0xC2B2AE3DU * what +
               0x27D4EB2FU * static_cast<uint32_t>(lane);
  for (int round = 0; round < 2; ++round) {
    x ^= x >> 16;
    x *= 0x85EBCA6BU;
    x ^= x >> 13;
    x *= 0xC2B2AE35U;
  }
  return x ^ x >> 16;
}

/// The registers of one lane before the instruction.
struct Fp4Lane {
  uint32_t left[4];
  uint32_t right[2];
  uint32_t left_scale;
  uint32_t right_scale;
  float sums[4];
};

/// Four scales of a lane: side 0 is the left operand's, 1 the right one's.
NIBBLE_FP4 constexpr uint32_t fp4_case_scales(const Fp4Case& of, int side, int lane) {
  uint32_t scales = 0;
  for (int group = 0; group < 4; ++group) {
    const uint32_t random = fp4_random(of, 16U + 4U * side + group, lane);
    uint32_t scale = kFp4One;
    if (of.kind == Fp4CaseKind::powers) scale = 0x28U + random % 5U * 8U;
    if (of.kind == Fp4CaseKind::any) scale = random % 0x7FU;
    if (of.kind == Fp4CaseKind::scale_bytes) {  // one group alone counts
      if (of.index / 1024 == side) scale = static_cast<uint32_t>(of.index % 256);
      if (of.index / 256 % 4 != group) scale = 0;
    }
    scales |= scale << (8 * group);
  }
  return scales;
}

NIBBLE_FP4 constexpr Fp4Lane fp4_case_lane(const Fp4Case& of, int lane) {
  Fp4Lane out{};
  const bool pairs = of.kind == Fp4CaseKind::pairs;
  for (uint32_t i = 0; i < 4; ++i)
    out.left[i] =
        pairs ? static_cast<uint32_t>(of.index / 16) * 0x11111111U : fp4_random(of, i, lane);
  for (uint32_t i = 0; i < 2; ++i)
    out.right[i] =
        pairs ? static_cast<uint32_t>(of.index % 16) * 0x11111111U : fp4_random(of, 4U + i, lane);
  out.left_scale = fp4_case_scales(of, 0, lane);
  out.right_scale = fp4_case_scales(of, 1, lane);
  for (uint32_t i = 0; i < 4; ++i)
    out.sums[i] =
        of.kind == Fp4CaseKind::scale_bytes
            ? 0.0F
            : static_cast<float>(static_cast<int>(fp4_random(of, 8U + i, lane) % 64U) - 32);
  return out;
}

/// The sums of one case after the instruction, [register][lane].
struct Fp4Sums {
  float of[4][32];
};
/// The sums that the instruction must give, computed on the host (fp4_on_host.cc).
Fp4Sums fp4_on_host(const Fp4Case& of);

/// A mistake that is planted in what is tried, so that it can be seen to be found.
enum class Fp4Fault : uint8_t {
  none,
  last_bit,   // one sum of one case has another last bit
  scales,     // the lanes that give scales of the right operand are the next ones
  lost_code,  // in some cases the lowest code of a left operand is zero
};

}  // namespace nibble::cuda
