// Prints what fairness costs and gives, simulated, and how long the scheduler itself takes.
#include <chrono>
#include <cstdio>

#include "engine/testing/fairness_workload.h"

namespace nibble {
namespace {

struct Row {
  const char* load;
  FairnessSetup setup;
};

void print_row(const char* load, const FairnessSetup& setup) {
  const FairnessResult r = FairnessRun(setup).run();
  std::printf("| %s | %.0f %% |", load, 100.0 * setup.limits.long_share);
  for (const double ms : r.long_first_ms) std::printf(" %.1f s |", ms / 1000.0);
  std::printf(" %.1f / %.1f / %.1f s | %.0f / %.0f ms | %.0f |\n",
              percentile(r.short_first_ms, 0.5) / 1000.0,
              percentile(r.short_first_ms, 0.95) / 1000.0,
              percentile(r.short_first_ms, 1.0) / 1000.0, percentile(r.gaps_ms, 0.5),
              percentile(r.gaps_ms, 0.99), r.prefill_tokens_per_second);
}

void print_fairness() {
  std::printf(
      "| load | long share | 60K first token | 200K first token | short ones: p50 / p95 / worst |"
      " inter-token p50 / p99 | prefill tokens/s |\n|---|---|---|---|---|---|---|\n");
  for (const double share : {0.25, 0.40, 0.50}) {
    FairnessSetup setup;
    setup.measured_ms = 120000.0;
    setup.limits.long_share = share;
    print_row("outputs 100-500", setup);
    setup.output_min = setup.output_max = 60;
    print_row("outputs 60: saturated", setup);
  }
}

double microseconds(int running, int waiting, uint64_t tenants) {
  Scheduler scheduler({.rows_max = 8192, .sequences_max = running + 1}, CostModel());
  std::vector<SequenceView> views;
  for (int i = 0; i < running; ++i)
    views.push_back({.phase = i % 8 == 0 ? Phase::prefill : Phase::decode,
                     .prompt_size = 4096,
                     .cached = i % 8 == 0 ? 64 * (i % 32) : 4100 + i,
                     .tokens_max = 9000,
                     .pages_held = 100,
                     .pages_private = 100,
                     .tenant = static_cast<uint64_t>(i) % tenants});
  for (int i = 0; i < waiting; ++i)
    views.push_back(
        {.prompt_size = 4096, .tokens_max = 9000, .tenant = static_cast<uint64_t>(i) % tenants});
  const auto begin = std::chrono::steady_clock::now();
  constexpr int kRounds = 20000;
  size_t rows = 0;
  for (int i = 0; i < kRounds; ++i)
    rows += scheduler.next(views, {.pages = 60, .state_slots = 9}, i).rows.size();
  const std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - begin;
  return rows > 0 ? spent.count() / kRounds : 0.0;
}

void print_times() {
  std::printf("\n| running | waiting | tenants | one schedule |\n|---|---|---|---|\n");
  for (const int running : {64, 256})
    for (const uint64_t tenants : {1, 50})
      std::printf("| %d | 1024 | %d | %.1f us |\n", running, static_cast<int>(tenants),
                  microseconds(running, 1024, tenants));
}

}  // namespace
}  // namespace nibble

int main() {
  nibble::print_fairness();
  nibble::print_times();
}
