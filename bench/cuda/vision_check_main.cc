// The checks of vision_check.cu in src/backend/cuda/checks; `time` adds a tower of the 35B's shape.
//   cuda_vision_check [time]
#include "check_program.h"
#include "kernel_times.h"

int main(int argc, char** argv) {
  using namespace nibble;
  const bench::Words words(argc, argv);
  return bench::run_checks([&](checks::Tally& tally) {
    checks::check_vision(tally);
    if (words.has("time")) bench::time_vision();
  });
}
