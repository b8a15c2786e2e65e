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

/// Weights that one token meets, the head included.
double active_weights(const ModelConfig& config) {
  const AttentionConfig& a = config.attention;
  const DeltaNetConfig& d = config.delta_net;
  const double hidden = config.hidden;
  const double q = 1.0 * a.q_heads * a.head_dim;
  const double attention = hidden * ((a.output_gate ? 3 : 2) * q + 2.0 * a.kv_heads * a.head_dim);
  const double delta = hidden * (d.qkv_rows() + 2.0 * d.z_rows() + 2.0 * d.v_heads);
  double mlp = 3.0 * hidden * config.dense_width;
  if (config.moe)
    mlp = hidden * (config.moe->experts + 1.0 + 3.0 * config.moe->top_k * config.moe->expert_width +
                    3.0 * config.moe->shared_width);
  return config.count(LayerKind::attention) * attention +
         config.count(LayerKind::delta_net) * delta + config.layer_count() * mlp +
         hidden * config.vocab_rows;
}

/// Prints the least time that a token can take on one core if all weights are BF16.
void print_floor(const ModelConfig& config) {
  const double weights = active_weights(config);
  const double fma = bench::fma_per_s("avx512");
  const double bytes = bench::read_bytes_per_s(size_t{16} << 20);
  std::printf(
      "floor of a token, one core: %.2f M weights; FMA %.0f us at %.1f GFMA/s; reading %.0f us "
      "at %.0f GB/s from a 16 MB set\n",
      weights * 1e-6, weights / fma * 1e6, fma * 1e-9, 2.0 * weights / bytes * 1e6, bytes * 1e-9);
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
  print_floor(config);
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
