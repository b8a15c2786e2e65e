// The parts of cuda_fp4_check.
#pragma once

#include "backend/cuda/ops/linear/prefill_order.h"
#include "backend/cuda/runtime/launcher.h"
#include "prefill_check.h"

namespace nibble::bench {

/// Returns a launcher that makes products of 4-bit codes by the card's instruction or, if it has
/// none, in software.
inline cuda::Launcher fp4_launcher() {
  const cuda::Device& facts = opened_device().facts();
  cuda::Architecture card{.code = facts.code,
                          .multiprocessors = facts.multiprocessors,
                          .shared_bytes = facts.shared_bytes};
  card.fp4 =
      card.has_fp4_mma() ? cuda::Architecture::Fp4::machine : cuda::Architecture::Fp4::software;
  return {.device = &opened_device(), .card = card};
}

/// Returns where column c lies in its row.
inline int place_of(cuda::ColumnOrder order, int c) {
  return order == cuda::ColumnOrder::packed ? cuda::packed_position(c) : placed(c);
}

/// The instruction on fragments against the host (fp4_proof_check.cu).
void check_instruction(Tally& tally, const cuda::Launcher& launcher);
/// Rows of inputs against tensor/activation_codec.h (fp4_rows_check.cu).
void check_rows(Tally& tally, const cuda::Launcher& launcher);

}  // namespace nibble::bench
