// The groups of checks of a receipt, in the order in which they run.
#include "backend/cuda/checks/card_checks.h"
#include "backend/cuda/checks/opened_device.h"
#include "backend/cuda/checks/part_runner.h"
#include "backend/cuda/proof/card_receipt.h"
#include "backend/cuda/proof/fp4_harness.h"
#include "backend/cuda/runtime/device_memory.h"
#include "base/concat.h"

namespace nibble {
namespace {

using checks::Tally;

enum class Ways : uint8_t { fp4, blocks, native, both };

struct Group {
  const char* name;
  Ways ways;
  void (*run)(Tally& tally);
};
constexpr Group kGroups[] = {
    {"the instruction for 4-bit codes", Ways::fp4, checks::check_instruction},
    {"inputs rounded to codes", Ways::native,
     [](Tally& tally) {
       checks::check_quantized_rows(tally);
       checks::check_norm_rows(tally);
     }},
    {"linears and experts of 4-bit codes", Ways::fp4, checks::check_fp4},
    {"linears and experts by tensor memory", Ways::blocks,
     [](Tally& tally) {
       checks::check_blocks(tally);
       checks::check_expert_groups(tally);
       checks::check_expert_products(tally);
     }},
    {"linears and experts in FP8", Ways::native, checks::check_fp8},
    {"linears of generated tokens", Ways::both,
     [](Tally& tally) { checks::check_linear(tally, checks::Matrices::all); }},
    {"linears and experts of prompts", Ways::both, checks::check_prefill_gemm},
    {"delta rule of prompts", Ways::native, checks::check_delta},
    {"attention of prompts", Ways::both, checks::check_flash},
    {"keys and values in their formats", Ways::native, checks::check_kv_lines},
    {"vision tower", Ways::both, checks::check_vision},
};

std::string ran(Ways ways, const CardIdentity& card) {
  switch (ways) {
    case Ways::fp4:
      return card.has_fp4_instruction ? "instruction" : "emulated";
    case Ways::blocks:
      return card.has_tensor_memory ? "tensor memory" : "emulated";
    case Ways::both:
      return concat("native (", card.code, ") and portable");
    default:
      return concat("native (", card.code, ")");
  }
}

}  // namespace

void outlive_card() { cuda::outlive_device(); }

Result<void> check_card(const std::function<void(const CheckedPart&)>& report) {
  const CardIdentity card = TRY(card_identity({}));
  std::vector<checks::Part> parts;
  for (const Group& group : kGroups)
    parts.push_back({.name = group.name, .ran = ran(group.ways, card), .run = group.run});
  return checks::run_parts(
      parts, [] { return checks::opened_device().alive(); }, report);
}

}  // namespace nibble
