// Checks of kernels on a card, each against double arithmetic or the codec of the host: what the
// programs of bench/cuda and the receipt of a card (proof/card_receipt.h) run. They need a card
// that describe_cuda_device() knows, and its first one is used. Without CUDA they are not built.
#pragma once

#include <functional>
#include <string>

#include "backend/cuda/checks/tally.h"

namespace nibble::checks {

// Products of 4-bit codes; without an instruction for them, computed in software.
void check_instruction(Tally& tally);
/// The harness of a server's start, and that it sees what is planted.
void check_harness(Tally& tally);
void check_quantized_rows(Tally& tally);
void check_norm_rows(Tally& tally);
void check_fp4(Tally& tally);
/// Operands in the order of tensor memory and products of them, without it in software.
void check_blocks(Tally& tally);
// The same of experts.
void check_expert_groups(Tally& tally);
void check_expert_products(Tally& tally);

/// Products in FP8; nothing where the card has no instruction for them.
void check_fp8(Tally& tally);

/// small: without large matrices, for compute-sanitizer.
enum class Matrices : uint8_t { all, small };
// Generation.
void check_linear(Tally& tally, Matrices matrices);

// Prompts.
void check_prefill_gemm(Tally& tally);
void check_delta(Tally& tally);
void check_flash(Tally& tally);

void check_kv_lines(Tally& tally);
void check_vision(Tally& tally);

// Timings, as lines of `tally`.
void time_prefill_gemm(Tally& tally);
void time_delta(Tally& tally);
void time_flash(Tally& tally);
void time_fp8(Tally& tally);
void time_norm_rows(Tally& tally);

/// A step of a prompt of 4,096 tokens at the shapes of the 35B, to be timed, with its memory.
struct TimedStep {
  std::string name;
  double flops = 0;
  std::function<void()> launch;
};
TimedStep attention_step();
TimedStep delta_step();

}  // namespace nibble::checks
