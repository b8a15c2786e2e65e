// One model from its folder: load time, decode and prefill speed, and where the time goes.
//   decode_bench DIR [threads] [isa]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "backend/cpu/cpu_backend.h"
#include "bench/cpu/machine_bounds.h"
#include "checkpoint/checkpoint.h"
#include "model/forward.h"

namespace nibble {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

Batch batch_of(int rows, int kv_begin, int pages) {
  Batch batch;
  for (int i = 0; i < rows; ++i) batch.tokens.push_back(100 + (kv_begin + i) % 1000);
  for (int axis = 0; axis < 3; ++axis)
    for (int i = 0; i < rows; ++i) batch.positions.push_back(kv_begin + i);
  batch.sequences = {{.row_count = rows, .kv_begin = kv_begin, .page_count = pages}};
  for (int32_t p = 0; p < pages; ++p) batch.pages.push_back(p);
  batch.logit_rows = {rows - 1};
  return batch;
}

/// The walk of forward(), with the fastest time of each kind of block added up.
void profile(Backend& backend, const ModelConfig& config, const Batch& batch) {
  double us[5] = {};
  const auto timed = [](double& sum, const auto& call) {
    const auto begin = Clock::now();
    call();
    sum += ms_since(begin) * 1e3;
  };
  double best[5] = {1e30, 1e30, 1e30, 1e30, 1e30};
  for (int repeat = 0; repeat < 300; ++repeat) {
    for (double& u : us) u = 0.0;
    Residual h;
    timed(us[0], [&] { h = backend.embed(batch); });
    for (int layer = 0; layer < config.layer_count(); ++layer) {
      const bool attends = config.layers[static_cast<size_t>(layer)] == LayerKind::attention;
      timed(us[attends ? 1 : 2], [&] {
        if (attends) {
          backend.attention_block(layer, batch, h);
        } else {
          backend.delta_net_block(layer, batch, h);
        }
      });
      timed(us[3], [&] {
        if (config.moe) {
          backend.moe_block(layer, batch, h);
        } else {
          backend.dense_mlp_block(layer, batch, h);
        }
      });
    }
    timed(us[4], [&] { backend.head(batch, h); });
    for (int i = 0; i < 5; ++i) best[i] = us[i] < best[i] ? us[i] : best[i];
  }
  std::printf(
      "  %4d rows at %4d: embed %.0f, attention %.0f, delta-net %.0f, mlp %.0f, head %.0f us\n",
      batch.rows(), batch.sequences[0].kv_begin, best[0], best[1], best[2], best[3], best[4]);
}

int run(const std::string& folder, const BackendOptions& options) {
  const auto begin = Clock::now();
  const Checkpoint checkpoint = Checkpoint::open(folder).value();
  const ModelConfig config = ModelConfig::parse(checkpoint.config()).value();
  const Weights weights = Weights::bind(checkpoint, config).value();
  const double bound_ms = ms_since(begin);
  const auto backend = make_cpu_backend(weights, config, options).value();
  constexpr int kPages = 20;
  backend->reserve({.pages = kPages, .state_slots = 2, .rows_max = 512}).value();
  backend->zero_state(0);
  std::printf("%s\n  open and bind %.1f ms, load %.1f ms\n", backend->description().c_str(),
              bound_ms, ms_since(begin) - bound_ms);
  for (const int rows : {64, 256, 512}) {
    const Batch batch = batch_of(rows, 0, kPages);
    const double s = bench::fastest_s(1.0, [&] { forward(*backend, config, batch); });
    std::printf("  prefill of %d: %.0f tokens/s\n", rows, rows / s);
  }
  for (const int kv : {128, 1000}) {
    const Batch batch = batch_of(1, kv, kPages);
    const double s = bench::fastest_s(1.0, [&] { forward(*backend, config, batch); });
    const auto start = Clock::now();
    constexpr int kSteps = 2000;
    for (int i = 0; i < kSteps; ++i) forward(*backend, config, batch);
    std::printf("  decode at %d: %.0f tokens/s fastest step, %.0f tokens/s over %d steps\n", kv,
                1.0 / s, kSteps / ms_since(start) * 1e3, kSteps);
    profile(*backend, config, batch);
  }
  profile(*backend, config, batch_of(256, 0, kPages));
  return 0;
}

}  // namespace
}  // namespace nibble

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "decode_bench DIR [threads] [isa]\n"), 1;
  return nibble::run(
      argv[1], {.threads = argc > 2 ? std::atoi(argv[2]) : 0, .isa = argc > 3 ? argv[3] : ""});
}
