// The conditions under which each kernel of a delta net runs.
#include "backend/cuda/ops/delta_net/delta_select.h"

#include <algorithm>
#include <string_view>

#include "base/concat.h"

namespace nibble::cuda {
namespace {

constexpr int kPortableThreads = 256;

/// True if the states suit recurrence_stream.cuh: bulk copies need 16-byte alignment.
bool streams(const DeltaNetArgs& args, const Architecture& card) {
  const bool aligned = !args.batch.replays || args.saved_numbers() % 4 == 0;
  return aligned && card.overlaps() && args.kernels == DeltaNetKernels::automatic &&
         args.k_dim == kStreamDim && args.v_dim == kStreamDim && args.state.slot_stride % 4 == 0;
}
bool splits(const DeltaNetArgs& args, const Architecture& card) {
  return args.v_heads * args.batch.sequences <= card.multiprocessors;
}
/// True if the recurrence computes the convolution itself.
bool convolves(const DeltaNetArgs& args, const Architecture& card) {
  const int units_max = kUnitsMax * kStreamBlocks * card.multiprocessors;
  return args.qkv != nullptr && !splits(args, card) &&
         args.k_heads * args.batch.sequences <= units_max && args.batch.extent().single_rows() &&
         !args.batch.replays && args.taps == kFusedTaps && args.v_heads / args.k_heads <= kFusedHeadsMax;
}

constexpr std::string_view state_name(StateFormat state) {
  return state == StateFormat::bf16 ? "bf16" : "f32";
}

}  // namespace

DeltaNetPlan select_delta_net(const DeltaNetArgs& args, const Architecture& card) {
  using Kernel = DeltaNetPlan::Kernel;
  DeltaNetPlan plan{.state = args.state.format, .replays = args.batch.replays};
  if (args.qkv == nullptr) plan.convolution = DeltaNetPlan::Convolution::done;
  const int items = args.v_heads * args.batch.sequences;
  if (!streams(args, card)) {
    if (args.v_dim % 4 != 0) plan.access = DeltaNetPlan::Access::numbers;
    plan.blocks = items;
    plan.threads = kPortableThreads;
    return plan;
  }
  const int most = kStreamBlocks * card.multiprocessors;
  plan.threads = kStreamThreads;
  if (convolves(args, card)) {
    plan.kernel = Kernel::convolve;
    plan.convolution = DeltaNetPlan::Convolution::fused;
    plan.channel_parts = std::max(channel_parts(args.v_heads / args.k_heads), 2);
    plan.blocks = std::min(args.k_heads * args.batch.sequences, most);
    plan.shared_bytes = kConvolveSharedBytes;
  } else if (splits(args, card)) {
    plan.kernel = Kernel::split;
    plan.cluster = kSplitBlocks;
    plan.blocks = items * kSplitBlocks;
    plan.threads = kStreamThreads / kSplitBlocks;
  } else {
    plan.kernel = Kernel::stream;
    plan.blocks = std::min(items, most);
    plan.shared_bytes = kStreamSharedBytes;
  }
  return plan;
}

int64_t delta_state_bytes(const DeltaNetArgs& args) {
  const int64_t state = int64_t{args.v_heads} * args.k_dim * args.v_dim;
  const int64_t inputs = int64_t{args.taps - 1} * args.qkv_rows() * int64_t{sizeof(float)};
  return 2 * args.batch.sequences * (state * state_element_bytes(args.state.format) + inputs);
}

DeltaChunkPlan select_delta_chunk(const DeltaShape& shape, StateFormat state, DeltaRuns runs,
                                  const Architecture& card) {
  DeltaChunkPlan plan{.k_dim = shape.k_dim, .state = state};
  const auto fits = [&](int blocks, int stages) {
    return blocks * along_shared_bytes(shape.k_dim, stages) <= card.shared_bytes;
  };
  if (runs == DeltaRuns::several && fits(2, 1))
    plan.resident = 2;
  else if (fits(1, 2))
    plan.stages = 2;
  plan.shared_bytes = along_shared_bytes(shape.k_dim, plan.stages);
  return plan;
}

std::string DeltaNetPlan::text() const {
  constexpr std::string_view kKernels[] = {"portable", "stream", "split", "stream"};
  constexpr std::string_view kConvolutions[] = {"convolution before it", "with the convolution",
                                                "convolution in the product"};
  std::string out = concat(kKernels[static_cast<int>(kernel)], ", state in ", state_name(state),
                           ", ", kConvolutions[static_cast<int>(convolution)], ", ", blocks,
                           " blocks, ", threads / 32, " warps");
  if (cluster > 1) out += concat(", clusters of ", cluster);
  if (shared_bytes > 0) out += concat(", ", shared_bytes, " bytes shared");
  if (replays) out += ", replays";
  return out + (access == Access::numbers ? ", number by number" : "");
}

std::string DeltaChunkPlan::text() const {
  return concat("mma.sync, chunks of 64, keys of ", k_dim, ", state in ", state_name(state), ", ",
                resident, resident == 1 ? " block" : " blocks", " an SM, ", stages,
                stages == 1 ? " stage, " : " stages, ", shared_bytes, " bytes shared");
}

}  // namespace nibble::cuda
