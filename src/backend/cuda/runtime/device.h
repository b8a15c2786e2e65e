// The facts of a card, and whether it can be used.
#pragma once

#include <cstdint>
#include <string>

#include "backend/cuda/runtime/code_targets.h"
#include "base/result.h"

namespace nibble::cuda {

struct Device {
  int index = 0;
  std::string name;
  int compute_major = 0;
  int compute_minor = 0;
  int multiprocessors = 0;
  int shared_bytes = 0;  // the most dynamic shared memory of one thread block
  int64_t memory_bytes = 0;
  int64_t free_bytes = 0;
  CodeTarget code;  // the code of this program that runs on it
};

/// The first card, which becomes the current device of this thread. Errors: unsupported, saying
/// which of driver, card and code for it is missing.
Result<Device> open_device();

}  // namespace nibble::cuda
