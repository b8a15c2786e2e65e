// The block of a batch (device_batch.h) from page-locked host memory to the device, with tokens
// that the pass before has chosen in the place of some.
//
// Formula: to[i] = from[i]; for row r < rows with carried[r] >= 0 instead
// to[tokens_begin + r] = chosen[carried[r]].token, or 0 where that is -1, since none could be
// chosen: nobody reads such a row. Bytes moved: 4 an integer over the bus, and as many to memory.
// `from`, `carried` and `chosen` may be page-locked host memory. Oracle: DeviceBatch::upload() of
// the batch with these tokens. `to` overlaps nothing.
#pragma once

#include <cstdint>

#include "backend/cuda/ops/head/choose_token.h"
#include "backend/cuda/runtime/launcher.h"

namespace nibble::cuda {

struct CarryArgs {
  const int32_t* from = nullptr;     // [ints]
  const int32_t* carried = nullptr;  // [rows]
  const ChosenRow* chosen = nullptr;
  int32_t* to = nullptr;  // [ints]
  int64_t ints = 0;
  int64_t tokens_begin = 0;
  int32_t rows = 0;
};
void carry_tokens(const CarryArgs& args, const Launcher& launcher);

}  // namespace nibble::cuda
