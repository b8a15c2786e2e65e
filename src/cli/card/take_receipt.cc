// Harness, checks, figures, in this order: a card that computes wrong is not timed for nothing.
#include "cli/card/take_receipt.h"

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/proof/proof_memory.h"
#include "cli/card/commit.h"
#include "cli/card/model_check.h"
#include "cli/card/nvml.h"
#include "plan/text_table.h"

namespace nibble {

Result<Receipt> take_receipt(double seconds, Terminal& terminal) {
  Receipt receipt{.version = NIBBLE_VERSION,
                  .commit = std::string(source_commit()),
                  .program = running_program(),
                  .built_for = describe_cuda_code()};
  receipt.card = TRY(card_identity({}));
  receipt.driver = ask_driver().version;
  add_data_sheet(receipt);
  receipt.harness = TRY(run_fp4_harness(receipt.card.has_fp4_instruction ? Fp4Products::instruction
                                                                         : Fp4Products::software));
  const auto report = [&](const CheckedPart& part) {
    terminal.err(concat("checked ", part.name, ": ", part.passed, " passed, ", part.failed,
                        " failed, ", fixed_text(part.seconds, 1), " s\n"));
  };
  receipt.checks = TRY(check_card(report));
  receipt.checks.push_back(
      TRY(check_small_models(make_cuda_backend, concat("native (", receipt.card.code, ")"))));
  report(receipt.checks.back());
  if (seconds <= 0) return receipt;
  terminal.err(concat("measuring for ", fixed_text(seconds, 0), " s\n"));
  receipt.figures = TRY(time_card(seconds));
  return receipt;
}

}  // namespace nibble
