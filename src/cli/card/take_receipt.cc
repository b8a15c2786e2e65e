// Harness, checks, figures, in this order: a card that computes wrong is not timed for nothing.
#include "cli/card/take_receipt.h"

#include <cmath>

#include "backend/cuda/cuda_backend.h"
#include "cli/card/card_products.h"
#include "cli/card/commit.h"
#include "cli/card/model_check.h"
#include "cli/card/nvml.h"
#include "plan/text_table.h"

namespace nibble {
namespace {

/// The row of what the card did not bring to its end.
CheckedPart broken_part(std::string name, std::string ran, const Error& failure) {
  return {.name = std::move(name),
          .ran = std::move(ran),
          .failed = 1,
          .worst = std::nan(""),
          .failures = {failure.message}};
}

/// The program and the card.
Result<Receipt> first_facts() {
  Receipt receipt{.version = NIBBLE_VERSION,
                  .commit = std::string(source_commit()),
                  .program = running_program(),
                  .built_for = describe_cuda_code()};
  receipt.card = TRY(card_identity({}));
  receipt.driver = ask_driver().version;
  add_data_sheet(receipt);
  return receipt;
}

}  // namespace

Result<Receipt> take_receipt(double seconds, Terminal& terminal) {
  Receipt receipt = TRY(first_facts());
  const auto take = [&](const CheckedPart& part) {
    terminal.err(concat("checked ", part.name, ": ", part.passed, " passed, ", part.failed,
                        " failed, ", fixed_text(part.seconds, 1), " s\n"));
    receipt.checks.push_back(part);
  };
  outlive_card();
  const bool native = receipt.card.has_fp4_instruction;
  const auto harness = run_fp4_harness(native ? Fp4Products::instruction : Fp4Products::software);
  if (!harness.ok()) {
    take(broken_part("fragments of 4-bit codes", native ? "instruction" : "emulated",
                     harness.error()));
    return receipt;
  }
  receipt.harness = harness.value();
  if (!check_card(take).ok()) return receipt;
  const std::string ran = concat("native (", receipt.card.code, ")");
  const auto models = check_small_models(make_cuda_backend, ran);
  take(models.ok() ? models.value() : broken_part(kSmallModels, ran, models.error()));
  if (seconds <= 0 || !models.ok()) return receipt;
  terminal.err(concat("measuring for ", fixed_text(seconds, 0), " s\n"));
  auto figures = time_card(seconds);
  if (!figures.ok() && figures.error().code != ErrorCode::io) return figures.error();
  if (figures.ok())
    receipt.figures = std::move(figures).value();
  else
    take(broken_part("measurements", ran, figures.error()));
  return receipt;
}

void remember_receipt(const Receipt& receipt, Terminal& terminal) {
  if (!receipt.card.has_tensor_memory) return;
  const ProofSubject subject = proof_subject(receipt.card, Fp4Products::instruction);
  const std::filesystem::path file = proof_file(subject);
  const bool sound = is_sound(receipt);
  const auto kept = file.empty()
                        ? Result<void>(make_error(ErrorCode::io, {.what = "the cache folder",
                                                                  .expected = "one that is known",
                                                                  .found = "none"}))
                        : remember_proof(file, subject,
                                         sound ? cuda::Fp4Proof::equal : cuda::Fp4Proof::different);
  terminal.err(concat("products of 4-bit codes by tensor memory are ",
                      sound && kept.ok() ? "on" : "off", " for this card",
                      kept.ok() ? "" : concat(": ", kept.error().message), "\n"));
}

}  // namespace nibble
