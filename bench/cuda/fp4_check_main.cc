// Products of 4-bit codes against double arithmetic, by the card's instruction or in software: the
// checks of src/backend/cuda/checks, and mistakes in layouts, planted, that must be seen.
//   cuda_fp4_check [harness|instruction|rows|products|blocks|mistakes ...]
#include "check_program.h"
#include "quantized_mistakes.h"

int main(int argc, char** argv) {
  using namespace nibble;
  const bench::Words words(argc, argv);
  return bench::run_checks([&](checks::Tally& tally) {
    const auto asked = [&](const char* part) { return words.none() || words.has(part); };
    if (asked("harness")) checks::check_harness(tally);
    if (asked("instruction")) checks::check_instruction(tally);
    if (asked("rows")) checks::check_quantized_rows(tally);
    if (asked("products")) checks::check_fp4(tally);
    if (asked("blocks")) {
      checks::check_blocks(tally);
      checks::check_expert_groups(tally);
      checks::check_expert_products(tally);
    }
    if (asked("mistakes")) bench::check_planted_mistakes(tally);
  });
}
