// A bar while it works, a line when it is done.
#include "cli/quantizing/quantize_work.h"

#include <chrono>
#include <cstdio>

namespace nibble {

Result<QuantizeReport> quantize_watched(QuantizeWork work, Terminal& terminal) {
  const auto begin = std::chrono::steady_clock::now();
  Progress progress(
      terminal, {.label = "quantize", .unit = "MB", .unit_scale = 1e6, .display = work.display});
  const InterruptFlag flag;
  work.options.cancelled = interrupted;
  work.options.progress = [&](int64_t done, int64_t total) {
    progress.update(static_cast<uint64_t>(done), static_cast<uint64_t>(total));
  };
  QuantizeReport report =
      TRY(quantize(work.checkpoint, work.plan, work.recipe, work.output, work.options));
  progress.finish();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  char line[64];
  std::snprintf(line, sizeof line, "quantized in %.2f s\n", seconds.count());
  terminal.err(line);
  return report;
}

}  // namespace nibble
