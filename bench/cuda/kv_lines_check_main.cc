// The checks of kv_lines_check.cu in src/backend/cuda/checks.
//   cuda_kv_lines_check
#include "check_program.h"

int main() { return nibble::bench::run_checks(nibble::checks::check_kv_lines); }
