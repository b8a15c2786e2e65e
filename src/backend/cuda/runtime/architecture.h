// The facts of a card that kernels are chosen by, as plain numbers: a choice can be computed,
// printed and tested where there is no card. This is the one place that says which instructions
// exist where.
#pragma once

#include <array>
#include <cstdint>

#include "backend/cuda/runtime/code_targets.h"

namespace nibble::cuda {

/// Sizes of thread-block clusters that kernels are built for: 2, 4 and 8 blocks.
inline constexpr std::array<int32_t, 3> kClusterSizes = {2, 4, 8};

struct Architecture {
  CodeTarget code;              // the code that runs on the card, not the card's own capability
  int32_t multiprocessors = 0;  // SMs
  int32_t shared_bytes = 0;     // the most dynamic shared memory that one thread block may have
  std::array<int32_t, 3> clusters = {};  // clusters of kClusterSizes blocks with a whole SM's
                                         // shared memory each that run at once
  enum class Kernels : uint8_t {
    native,
    portable
  } kernels = Kernels::native;  // portable: what
                                // runs from compute capability 8.0 up; tests force it

  /// The way of products of 4-bit codes with 4-bit codes: none, the instruction, or kernels that
  /// compute it in software, for checks on other cards; blocks: what tensor memory does, likewise.
  enum class Fp4 : uint8_t { off, machine, software, blocks } fp4 = Fp4::off;

  bool operator==(const Architecture&) const = default;

  /// True if there are clusters, bulk copies and launches that start while the last kernel drains.
  bool overlaps() const { return code.major >= 9 && kernels == Kernels::native; }
  /// True if there are matrix instructions of a warpgroup: code for sm_90a alone has them.
  bool has_wgmma() const {
    return code.major == 9 && code.reach == CodeTarget::Reach::exact && kernels == Kernels::native;
  }
  /// True if there are matrix instructions for 4-bit numbers with block scales within a warp.
  bool has_fp4_mma() const {
    return code.major == 12 && code.reach != CodeTarget::Reach::portable &&
           kernels == Kernels::native;
  }
  /// True if there are those that keep sums and block scales in tensor memory. Where the code is
  /// for that capability, the build has the kernels too (ops/quantized/sm100).
  bool has_tensor_memory() const {
    return code.major == 10 && code.reach != CodeTarget::Reach::portable &&
           kernels == Kernels::native;
  }
  /// True if 4-bit codes are multiplied by an instruction, in one way or the other.
  bool multiplies_fp4() const { return has_fp4_mma() || has_tensor_memory(); }
  /// True for products by tensor memory, or by software in its place.
  bool uses_tensor_memory() const {
    return fp4 == Fp4::blocks || (fp4 == Fp4::machine && has_tensor_memory());
  }
  /// True for a Hopper card, whatever code runs on it.
  static constexpr bool is_hopper(int compute_major) { return compute_major == 9; }
  /// True if conversions between E4M3 and F16 are instructions.
  bool converts_fp8() const { return code.major * 10 + code.minor >= 89; }
  int32_t clusters_of(int32_t blocks) const {
    return clusters[blocks == 2 ? 0 : blocks == 4 ? 1 : 2];
  }
};

}  // namespace nibble::cuda
