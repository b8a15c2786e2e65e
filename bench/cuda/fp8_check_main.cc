// Products in FP8 against double arithmetic (the checks of src/backend/cuda/checks), and mistakes
// in layouts, planted, that must be seen. `time` adds timings, beside the products in BF16 of the
// same weights, `only` leaves the checks out.
//   cuda_fp8_check [time|only]
#include "check_program.h"
#include "quantized_mistakes.h"

int main(int argc, char** argv) {
  using namespace nibble;
  const bench::Words words(argc, argv);
  return bench::run_checks([&](checks::Tally& tally) {
    if (!words.has("only")) {
      checks::check_quantized_rows(tally);
      checks::check_norm_rows(tally);
      checks::check_fp8(tally);
      bench::check_planted_fp8_mistakes(tally);
    }
    if (words.none()) return;
    checks::time_fp8(tally);
    checks::time_norm_rows(tally);
  });
}
