// The checks of delta_check.cu in src/backend/cuda/checks; `time` adds timings, `only` leaves the
// checks out.
//   cuda_prefill_delta_check [time|only]
#include "check_program.h"

int main(int argc, char** argv) {
  using namespace nibble;
  const bench::Words words(argc, argv);
  return bench::run_checks([&](checks::Tally& tally) {
    if (!words.has("only")) checks::check_delta(tally);
    if (!words.none()) checks::time_delta(tally);
  });
}
