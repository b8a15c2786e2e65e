// Kernels of the backward sweep against plain loops in double; `time` adds times at the shapes of
// the 35B, `only` leaves the checks out.
//   cuda_gradient_check [time|only]
#include "check_program.h"
#include "gradient_check.h"

int main(int argc, char** argv) {
  using namespace nibble;
  const bench::Words words(argc, argv);
  return bench::run_checks([&](checks::Tally& tally) {
    if (!words.has("only")) {
      bench::check_gradient_products(tally);
      bench::check_gradient_labels(tally);
      bench::check_gradient_delta(tally);
      bench::check_gradient_attention(tally);
    }
    if (!words.none()) bench::time_gradient(tally);
  });
}
