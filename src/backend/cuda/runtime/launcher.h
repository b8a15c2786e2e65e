// The form in which kernels are launched: the stream, the card, and what one step of a pass asks
// for.
#pragma once

#include <cstdint>

#include "backend/cuda/runtime/architecture.h"

struct CUstream_st;
using cudaStream_t =
    CUstream_st*;  // as cuda_runtime_api.h has it, which host code need not include

namespace nibble::cuda {

/// The parts of a pass, as benchmarks name them.
enum class Step : uint8_t {
  embed,
  project,  // the products at the start of a mixer
  attend,   // norms, rotation, attention
  convolve,
  recur,
  project_out,
  finish,  // add and norm
  router,
  route,
  gate_up,
  down,
  head,
  choose,
};
inline constexpr int kStepCount = 13;
inline constexpr const char* kStepNames[kStepCount] = {
    "embed",  "project", "attend",  "convolve", "recur", "project_out", "finish",
    "router", "route",   "gate_up", "down",     "head",  "choose"};
constexpr uint32_t step_bit(Step step) { return 1U << static_cast<int>(step); }

/// Kernels with different L1/shared-memory carveouts cannot be resident on one SM together, so
/// adjacent kernels of a pass use this one.
inline constexpr unsigned kCarveoutPercent = 44;

class DeviceContext;
class LaunchLog;

struct Launcher {
  DeviceContext* device =
      nullptr;  // where kernels run; walks on a machine without a card have none
  cudaStream_t stream = nullptr;
  Architecture card;    // the facts that kernels are chosen by, of the device or a smaller card
  int32_t cluster = 1;  // blocks of a thread-block cluster (compute capability 9.0 up)
  uint32_t carveout_steps = 0;  // bit s: launches of Step s reserve kCarveoutPercent of the L1 at
                                // least for shared memory; others as much as the kernel needs
  uint32_t skipped = 0;         // bit s: launches of Step s do nothing (benchmarks)
  Step step = Step::embed;
  LaunchLog* log = nullptr;  // gets a line for each launch with weights, if any
  /// overlapped: the kernel may start while the one before drains, where the card can, and waits
  /// for it itself (wait_for_inputs). in_order: for kernels that do not wait.
  enum class Start : uint8_t { overlapped, in_order } start = Start::overlapped;

  constexpr Launcher of(Step which) const {
    Launcher other = *this;
    other.step = which;
    return other;
  }
  constexpr Launcher in_order() const {
    Launcher other = *this;
    other.start = Start::in_order;
    return other;
  }
};

}  // namespace nibble::cuda
