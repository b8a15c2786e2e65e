// The checks of linear_check.cu in src/backend/cuda/checks. `time` adds the head of Qwen3.6-35B-A3B
// with inputs in shared memory and streamed, and the long rows of Qwen3.6-27B. `small` leaves large
// matrices out: for compute-sanitizer.
//   cuda_linear_check [time|only-time|small]
#include "check_program.h"
#include "kernel_times.h"

int main(int argc, char** argv) {
  using namespace nibble;
  const bench::Words words(argc, argv);
  return bench::run_checks([&](checks::Tally& tally) {
    using checks::Matrices;
    if (!words.has("only-time"))
      checks::check_linear(tally, words.has("small") ? Matrices::small : Matrices::all);
    if (words.has("time") || words.has("only-time")) bench::time_products();
  });
}
