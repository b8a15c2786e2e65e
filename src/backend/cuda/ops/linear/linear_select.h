// The choice of the kernel that makes each product of linear(), and of gate and up of a dense MLP:
// a pure function of the matrices, the number of rows and the card, so that it can be printed and
// tested without one. Kernels give different bits, so a matrix has the same kind of sums at every
// number of rows: `row`, `resident`, `tiles` and `norm` add in one order, `split` and `chain` in
// another, `stream` in its own.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "backend/cuda/ops/experts/experts.h"
#include "backend/cuda/ops/linear/linear.h"
#include "backend/cuda/ops/linear/linear_shapes.h"
#include "backend/cuda/runtime/architecture.h"

namespace nibble::cuda {

enum class LinearKernel : uint8_t {
  row,       // linear_row.cu: one row, its input on chip
  resident,  // linear_resident.cu: inputs on chip, the warps of a block share the columns of a tile
  tiles,     // linear_tiles.cu: inputs on chip, a warp or two make a tile
  norm,      // linear_norm.cu: several rows, normed by the kernel, few tiles
  split,     // linear.cu: long rows, the warps of a block share the columns of a tile
  chain,     // linear.cu: long rows, a warp makes a tile
  stream,    // linear_stream.cu: weights stream through shared memory into wgmma
};

/// One launch.
struct LinearPlan {
  LinearKernel kernel = LinearKernel::resident;
  Format format = Format::bf16;        // format of the first output
  Mix mix = Mix::one_format;           // mixed: the outputs after those are BF16
  StreamKind kind = StreamKind::head;  // stream
  uint8_t outputs = 0;                 // bit i: output i of the arguments is made by this launch
  int32_t tokens = 0;                  // tokens of a thread block
  int32_t warps = 0;                   // warps of a thread block
  int32_t warps_per_tile = 1;          // tiles, split and chain
  int32_t blocks = 0;  // of `tiles`, for each group of tokens; of its BF16 matrices:
  int32_t second_blocks = 0;
  int32_t cluster = 1;       // thread blocks of a cluster
  int32_t clusters = 0;      // stream
  int32_t stages = 0;        // stream: of the pipeline
  int32_t shared_bytes = 0;  // dynamic, of a thread block
  int64_t weight_bytes = 0;  // matrices, scales and factors, each read once

  bool operator==(const LinearPlan&) const = default;
  std::string text() const;  // "resident nvfp4 + bf16, 32 tokens, 16 warps, 164 KiB"
};

/// The launches of one call, in order.
struct LinearPlans {
  std::array<LinearPlan, kLinearsMax> plans = {};
  int32_t count = 0;
  std::span<const LinearPlan> all() const { return {plans.data(), static_cast<size_t>(count)}; }
};

/// CHECKs that all outputs have one number of columns, and that a norm is one that kernels make.
LinearPlans select_linear(const LinearArgs& args, const Architecture& card);
/// Gate and up of a dense MLP (no routed experts); count 0: experts' kernels make it.
LinearPlans select_gate_up(const ExpertArgs& args, const Architecture& card);
/// The plan of linear_stream.cu for these outputs even where select_linear prefers another kernel;
/// count 0: the kernel cannot make them. For checks.
LinearPlans select_stream(const LinearArgs& args, const Architecture& card);
LinearPlans select_stream(const ExpertArgs& args, const Architecture& card);

/// True if a thread block can hold the inputs of this matrix in shared memory: it has 16 slices of
/// columns at most.
bool inputs_fit(const DeviceLinear& weight);
/// True if linear() takes several rows from their norm: few tiles of BF16 whose inputs fit.
bool norms_rows(const LinearArgs& args, const Architecture& card);

/// Returns the bytes of a matrix, or of `matrices` of a stack, with scales and factors.
int64_t weight_bytes(const DeviceLinear& weight, int64_t matrices = 1);
std::string_view format_name(Format format);

}  // namespace nibble::cuda
