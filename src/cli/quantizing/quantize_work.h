// quantize() under a person's eyes: progress, Ctrl-C, the time it took.
#pragma once

#include <filesystem>

#include "cli/terminal.h"
#include "quantize/quantize.h"

namespace nibble {

struct QuantizeWork {
  const Checkpoint& checkpoint;
  const QuantPlan& plan;
  const Recipe& recipe;
  std::filesystem::path output;
  QuantizeOptions options;  // `cancelled` and `progress` are set here
  Progress::Display display = Progress::Display::shown;
};

/// While it runs Ctrl-C makes it stop; after, it does what it did before. Errors: those of
/// quantize().
Result<QuantizeReport> quantize_watched(QuantizeWork work, Terminal& terminal);

}  // namespace nibble
