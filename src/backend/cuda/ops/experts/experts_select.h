// The choice of the kernel that makes gate and up, and down, of a feed-forward in generation
// arithmetic: a pure function of the matrices, the number of rows and the card (see
// linear_select.h). Sums have one order in `row` and `resident`, another in `split` and `chain`,
// and their own in `stream`, so a matrix keeps to one of the three at every number of rows.
#pragma once

#include "backend/cuda/ops/experts/experts.h"
#include "backend/cuda/ops/linear/linear_select.h"

namespace nibble::cuda {

enum class ExpertKernel : uint8_t {
  row,       // experts_row.cu: one row from its norm to its sum
  resident,  // experts_resident.cu: inputs on chip, a warp makes a tile
  split,     // moe.cu: the warps of a block share the columns of a tile
  chain,     // moe.cu: a warp makes a tile
  stream,    // linear_stream.cu: gate and up without experts, into wgmma
};
/// The matrices of one launch: of the experts, the shared (or dense) one, or both.
enum class ExpertStacks : uint8_t { both, routed, shared };

/// One launch.
struct ExpertsPlan {
  ExpertKernel kernel = ExpertKernel::resident;
  ExpertStacks stacks = ExpertStacks::both;
  Format format = Format::bf16;
  int32_t warps = 0;  // warps of a thread block
  int32_t shared_bytes = 0;
  LinearPlan streamed;       // the plan of ExpertKernel::stream
  int64_t weight_bytes = 0;  // each matrix read once; of experts, those that rows of evenly spread
                             // choices are expected to go to
  bool operator==(const ExpertsPlan&) const = default;
  std::string text() const;
};
struct ExpertsPlans {
  std::array<ExpertsPlan, 2> plans = {};
  int32_t count = 0;
  std::span<const ExpertsPlan> all() const { return {plans.data(), static_cast<size_t>(count)}; }
};

/// gate_up: args.routed_low and shared_low are gates, the high ones up. down: low alone.
ExpertsPlans select_experts(ExpertPart part, const ExpertArgs& args, const Architecture& card);

/// True if experts_gate_up and experts_down can take a single row from its norm to its sum.
bool experts_take_a_row(const ExpertArgs& gate_up, const ExpertArgs& down,
                        const Architecture& card);

// ---- sizes that kernels and the choice share ----

inline constexpr int kResidentItems = 2;  // items whose inputs a block of experts_resident.cu has
inline constexpr int kResidentManyRows = 24;   // from so many rows on a block has more warps
inline constexpr int kResidentManyWarps = 10;  // warps of such a block: as many as registers allow
inline constexpr int kResidentFewWarps = 8;
constexpr int resident_expert_bytes(Format format, int slices) {
  return kResidentItems * resident_words(format, slices, 1) * kWordBytes;
}
inline constexpr int kSumWarpsMax = 32;  // warps of a block of down_sum in experts_row.cu
inline constexpr int kSumStaticBytes = kSumWarpsMax * (kTileSumBytes + 12 + 4 * kRowTile);
constexpr int sum_bytes(int warps) { return resident_words(Format::nvfp4, warps, 1) * 2; }

}  // namespace nibble::cuda
