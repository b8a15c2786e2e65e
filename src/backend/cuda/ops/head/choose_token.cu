// One launch, a few thread blocks a row: each keeps the logits of its slice in shared memory as
// ordered keys and has a barrier with the others of its row before each sum over the row is read.
// Sums of weights are integers, so atomic additions give the same bits in any order.
//
//   maximum   one barrier; greedy rows end here
//   cut       top-k and top-p: a histogram over equal steps between the best and the worst logit
//             finds the step that the cut is in, then histograms over keys narrow it down. Where no
//             more than kChoiceListMost tokens are left, they are listed and one block ranks them
//   draw      the sums of the slices lead to the slice that the draw falls in, whose block picks
//
// Blocks take their slices by ticket, in the order in which they start: those of a row are
// adjacent, so a block waits only for blocks that run or start next, whatever else is resident.
#include "backend/cuda/ops/head/choose_row.cuh"
#include "backend/cuda/ops/head/choose_token.h"
#include "backend/cuda/runtime/launch.cuh"

namespace nibble::cuda {
namespace {

using namespace choosing;

__global__ void __launch_bounds__(kThreads, kBlocksMin)
    choose_kernel(const __grid_constant__ ChooseArgs a) {
  __shared__ Scratch scratch;
  auto* state = static_cast<ChoiceState*>(a.state);
  if (threadIdx.x == 0) scratch.ticket = atomicAdd(&state->ticket, 1U);
  __syncthreads();
  const auto slices = static_cast<int>(choice_slices(a.vocab));
  const int index = static_cast<int>(scratch.ticket) / slices;
  if (threadIdx.x < sizeof(ChoiceRow) / 4)
    scratch.row[threadIdx.x] = reinterpret_cast<const uint32_t*>(a.rows_in + index)[threadIdx.x];
  __syncthreads();
  const auto& row = reinterpret_cast<const ChoiceRow&>(scratch.row);
  Chooser chooser{{.a = a,
                   .s = scratch,
                   .row = row,
                   .state = reinterpret_cast<RowState*>(state + 1) + index,
                   .logits = a.logits + int64_t{row.logits_row} * a.vocab,
                   .slices = slices,
                   .slice = static_cast<int>(scratch.ticket) % slices},
                  a.rows_out + index};
  chooser.run();
}

/// One token a thread. Two entries share a word, which compare-and-swap changes.
__global__ void count_kernel(const CountedToken* tokens, int64_t count, uint16_t* counts) {
  const int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at >= count) return;
  const uint32_t given = tokens[at].index_and_kind;
  const uint32_t index = given & ~CountedToken::kOfPrompt;
  auto* word = reinterpret_cast<uint32_t*>(counts) + index / 2;
  const unsigned shift = index % 2 * 16;
  uint32_t before = *word;
  for (;;) {
    const uint32_t entry = before >> shift & 0xFFFFU;
    uint32_t after = entry | kInPrompt;
    if ((given & CountedToken::kOfPrompt) == 0)
      after = (entry & kCountedMost) < kCountedMost ? entry + 1 : entry;
    const uint32_t found = atomicCAS(word, before, (before & ~(0xFFFFU << shift)) | after << shift);
    if (found == before) return;
    before = found;
  }
}

}  // namespace

void clear_choice_state(void* state, int64_t rows, const Launcher& launcher) {
  CUDA_CHECK(
      cudaMemsetAsync(state, 0, static_cast<size_t>(choice_state_bytes(rows)), launcher.stream));
}

void choose_tokens(const ChooseArgs& args, const Launcher& launcher) {
  const auto blocks = static_cast<unsigned>(choice_slices(args.vocab) * args.rows);
  launch(choose_kernel, launcher.in_order(), blocks, kThreads, 0, args);
}

void count_tokens(const CountedToken* tokens, int64_t count, uint16_t* counts,
                  const Launcher& launcher) {
  constexpr int kCountThreads = 256;
  const auto blocks = static_cast<unsigned>((count + kCountThreads - 1) / kCountThreads);
  launch(count_kernel, launcher.in_order(), blocks, kCountThreads, 0, tokens, count, counts);
}

}  // namespace nibble::cuda
