// The launcher and the order of columns that checks of products of 4-bit codes share.
#pragma once

#include "backend/cuda/checks/card_checks.h"
#include "backend/cuda/checks/check_parts.h"
#include "backend/cuda/ops/linear/prefill_order.h"
#include "backend/cuda/runtime/launcher.h"

namespace nibble::checks {

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

}  // namespace nibble::checks
