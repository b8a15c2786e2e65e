// Decode speed of a real shape on random weights made on the device: tokens per second by batch,
// share of the bytes' floor, and what each step of the pass costs (the pass without it).
//   decode_bench CONFIG.json [layout|declared] [context] [steps] ... [KV: as
//   --kv-cache-dtype] [state: f32|bf16] [kernels: native|portable]
// With declared, the linears have the formats that the quantization_config of CONFIG.json names.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "backend/cuda/bench_access.h"
#include "backend/cuda/runtime/launcher.h"
#include "base/file.h"
#include "engine/sample/row_sampler.h"
#include "model/forward.h"
#include "model/kv_codec.h"
#include "model/weights/synthetic_weights.h"

namespace nibble {
namespace {

using Clock = std::chrono::steady_clock;

/// Bytes a second of this card's memory, and where the figure is from.
struct Bandwidth {
  double bytes_per_s = 0.0;
  const char* source = "";
};

/// The figure of docs/kernels/ground.md where that card was measured, else the nominal one of
/// memory clock and bus width.
Bandwidth card_bandwidth() {
  constexpr double kH200Reads = 4.3e12;
  cudaDeviceProp properties = {};
  if (cudaGetDeviceProperties(&properties, 0) == cudaSuccess &&
      std::string(properties.name).find("H200") != std::string::npos)
    return {kH200Reads, "measured reads"};
  int clock_khz = 0;
  int bus_bits = 0;
  cudaDeviceGetAttribute(&clock_khz, cudaDevAttrMemoryClockRate, 0);
  cudaDeviceGetAttribute(&bus_bits, cudaDevAttrGlobalMemoryBusWidth, 0);
  constexpr double kTransfersPerClock = 2.0;
  return {kTransfersPerClock * 1e3 * clock_khz * bus_bits / 8, "nominal, clock x bus width"};
}

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

/// Clocks and power right after a run, as nvidia-smi has them; empty where it is not.
std::string card_state() {
  FILE* pipe = popen(
      "nvidia-smi --query-gpu=clocks.sm,clocks.mem,power.draw --format=csv,noheader 2>/dev/null",
      "r");
  if (pipe == nullptr) return {};
  char line[128] = {};
  const bool read = std::fgets(line, sizeof(line), pipe) != nullptr;
  pclose(pipe);
  std::string text = read ? line : "";
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

/// Bytes a decode step must move, by part. Experts: those expected of independent uniform choices.
struct Floor {
  double weights = 0.0;
  double experts = 0.0;
  double state = 0.0;
  double kv = 0.0;
  double total() const { return weights + experts + state + kv; }
};

/// Distinct experts of a layer that `batch` independent tokens meet.
double experts_expected(const MoeConfig& m, int batch) {
  return m.experts * (1.0 - std::pow(1.0 - static_cast<double>(m.top_k) / m.experts, batch));
}

/// Bytes of a linear that a pass reads whole.
double bytes_of(const LinearSource& linear) {
  const double count = static_cast<double>(linear.rows) * static_cast<double>(linear.cols);
  const WeightFormat format = linear.scheme.weights;
  return count * (format == WeightFormat::plain   ? 2.0
                  : format == WeightFormat::nvfp4 ? 0.5625
                                                  : 1.0);
}

double bytes_of(const MlpSources& mlp) {
  return bytes_of(mlp.gate) + bytes_of(mlp.up) + bytes_of(mlp.down);
}

Floor floor_of(const ModelConfig& c, const FormatOf& formats, int batch, int context,
               const BackendOptions& options) {
  const SyntheticWeights weights = synthetic_weights(c, formats);
  Floor f;
  f.weights = bytes_of(weights.head);
  for (const LayerSources& layer : weights.layers) {
    const AttentionSources& a = layer.attention;
    const DeltaNetSources& d = layer.delta_net;
    for (const LinearSource* linear : {&a.q, &a.k, &a.v, &a.o, &d.qkv, &d.z, &d.b, &d.a, &d.out,
                                       &layer.moe.router, &layer.moe.shared_gate})
      f.weights += bytes_of(*linear);
    f.weights += bytes_of(layer.dense_mlp) + bytes_of(layer.moe.shared);
    if (c.moe) f.experts += experts_expected(*c.moe, batch) * bytes_of(layer.moe.experts[0]);
  }
  const int deltas = c.count(LayerKind::delta_net);
  const DeltaNetConfig& d = c.delta_net;
  const AttentionConfig& a = c.attention;
  const double element = options.state == StateCache::bf16 ? 2.0 : 4.0;
  f.state =
      2.0 * batch * deltas * (element * d.v_heads * d.k_dim * d.v_dim + 4.0 * 3.0 * d.qkv_rows());
  const KvFormat kv = kv_format_of(options.kv_cache, KvFormat::bf16);
  f.kv = 1.0 * batch * c.count(LayerKind::attention) * a.kv_heads *
         static_cast<double>(kv_token_bytes(kv, a.head_dim)) * context;
  return f;
}

Batch step_batch(const std::vector<int32_t>& tokens, int position, int pages_each) {
  Batch batch;
  batch.tokens = tokens;
  batch.positions.assign(3 * tokens.size(), position);
  for (int32_t s = 0; s < static_cast<int32_t>(tokens.size()); ++s) {
    batch.sequences.push_back({.row_begin = s,
                               .row_count = 1,
                               .kv_begin = position,
                               .page_begin = s * pages_each,
                               .page_count = pages_each,
                               .state_in = s,
                               .state_out = s,
                               .arithmetic = Arithmetic::generation});
    for (int p = 0; p < pages_each; ++p) batch.pages.push_back(s * pages_each + p);
    batch.logit_rows.push_back(s);
  }
  return batch;
}

enum class Chooser : uint8_t { host, card };
constexpr int kOverlapped = 60;  // steps that overlap

struct Bench {
  Backend& backend;
  const ModelConfig& config;
  FormatOf formats;
  int context;
  int steps;
  BackendOptions options;
  PoolSizes pools;
  int pages_each;
  uint64_t served = 0;  // sequences whose tokens were chosen
  Bandwidth bandwidth = card_bandwidth();

  void reserve(uint32_t skipped) {
    cuda::skip_steps(backend, skipped);
    backend.reserve(pools).value();
    std::mt19937 engine(1);
    // BF16 or E4M3 below 2 in size; of 4 bits any codes, and scales below 2.
    for (size_t i = 0; auto& b : backend.host_page(0))
      b = static_cast<std::byte>(
          i++ % 2 == 1 || options.kv_cache != KvCache::bf16 ? (engine() & 0xBFU) : engine());
    for (int32_t p = 0; p < pools.pages; ++p) backend.load_page(0, p);
  }
  void decode(int batch);
  void sampled(int batch);
  void overlapped(int batch);
  void parts(int batch);
};

void Bench::decode(int batch) {
  std::mt19937 engine(static_cast<unsigned>(batch));
  const auto vocab = static_cast<size_t>(config.vocab_rows);
  std::vector<int32_t> tokens;
  for (int i = 0; i < batch; ++i)
    tokens.push_back(static_cast<int32_t>(engine() % static_cast<unsigned>(vocab)));
  int64_t met_before = 0;  // after the first step
  int64_t met = 0;
  double with_logits_ms = 0.0;
  for (int step = 0; step < steps; ++step) {
    const Batch b = step_batch(tokens, context + step, pages_each);
    const auto begin = Clock::now();
    const HeadOutput out = forward(backend, config, b);
    with_logits_ms += step >= steps / 2 ? ms_since(begin) : 0.0;
    if (config.moe) met = cuda::experts_met(backend);
    if (step == 0) met_before = met;
    for (size_t row = 0; row < static_cast<size_t>(batch); ++row) {
      const float* logits = out.logits.data() + row * vocab;
      if (!std::isfinite(logits[0])) std::printf("NaN at batch %d step %d\n", batch, step);
      size_t best = 0;  // the best of a random slice: a sampled token
      const size_t first = engine() % (vocab - 1000);
      for (size_t v = first; v < first + 1000; ++v)
        if (logits[v] > logits[best] || best == 0) best = v;
      tokens[row] = static_cast<int32_t>(best);
    }
  }
  const double distinct =
      static_cast<double>(met - met_before) / (config.layer_count() * std::max(steps - 1, 1));
  const double expected = config.moe ? experts_expected(*config.moe, batch) : 0.0;
  if (distinct < 0.95 * expected) {
    std::printf("batch %3d: refused: %.1f distinct experts a layer, independent tokens meet %.1f\n",
                batch, distinct, expected);
    return;
  }
  const cuda::Extent extent{.rows = batch, .sequences = batch};
  std::vector<double> times;
  for (int i = 0; i < 5; ++i) times.push_back(cuda::recorded_pass_us(backend, extent, 20));
  std::sort(times.begin(), times.end());
  const double median_us = times[2];
  const Floor floor = floor_of(config, formats, batch, context, options);
  const double floor_us = floor.total() / bandwidth.bytes_per_s * 1e6;
  std::printf(
      "batch %3d: %8.1f us (%.1f..%.1f), %8.1f tok/s, floor %7.1f us (%.2f GB: weights %.2f, "
      "experts %.2f, state %.2f, KV %.2f), %5.1f %%; with logits to host %8.1f us; experts a layer "
      "%.1f of %.1f; %s\n",
      batch, median_us, times.front(), times.back(), batch / median_us * 1e6, floor_us,
      floor.total() * 1e-9, floor.weights * 1e-9, floor.experts * 1e-9, floor.state * 1e-9,
      floor.kv * 1e-9, 100.0 * floor_us / median_us, with_logits_ms * 1e3 / (steps - steps / 2),
      distinct, expected, card_state().c_str());
  std::fflush(stdout);
}

/// Prints the cost of a step until its tokens are known: chosen on the host from all logits, and on
/// the card.
void Bench::sampled(int batch) {
  const auto vocab = static_cast<size_t>(config.vocab_rows);
  const auto count = static_cast<size_t>(batch);
  const cuda::Extent extent{.rows = batch, .sequences = batch};
  RowSampler sampler(Sampler(config.vocab_rows, Sampler::all_sampleable(config.vocab_rows)), 0);
  std::mt19937 engine(9);
  const auto measure = [&](const char* name, const SamplingParams& params, Chooser chooser) {
    std::vector<double> step_us;
    std::vector<std::vector<int32_t>> said(count);
    for (int step = 0; step < steps; ++step) {
      std::vector<int32_t> tokens(count);
      for (size_t i = 0; i < count; ++i) {
        tokens[i] = static_cast<int32_t>(engine() % static_cast<unsigned>(vocab));
        said[i].push_back(tokens[i]);
      }
      Batch b = step_batch(tokens, context + step, pages_each);
      std::vector<SampleRow> rows(count);
      for (size_t i = 0; i < count; ++i)
        rows[i].choice =
            Sampler::choice_of(params, {.generated = said[i], .serial = served + i + 1},
                               static_cast<uint64_t>(step) * count + i);
      const auto begin = Clock::now();
      if (chooser == Chooser::card)
        for (const SampleRow& row : rows) b.choices.push_back(row.choice);
      const HeadOutput out = forward(backend, config, b);
      for (size_t i = 0; i < count; ++i) {
        if (out.chosen.empty())
          rows[i].logits = out.logits.subspan(i * vocab, vocab);
        else
          rows[i].sampled = Sampler::result_of(out.chosen[i], rows[i].choice.rule);
      }
      sampler.sample(rows);
      step_us.push_back(1e3 * ms_since(begin));
    }
    served += count;
    std::sort(step_us.begin(), step_us.end());
    const double pass_us = cuda::recorded_pass_us(backend, extent, 20);
    std::printf("batch %3d, %-44s step %8.1f us, the recorded pass is %5.1f %% of it\n", batch,
                name, step_us[step_us.size() / 2], 100.0 * pass_us / step_us[step_us.size() / 2]);
    std::fflush(stdout);
  };
  const SamplingParams advised{.top_k = 20, .top_p = 0.95, .presence_penalty = 1.5};
  measure("on the host, top-k 20, top-p 0.95:", advised, Chooser::host);
  measure("on the card, the same:", advised, Chooser::card);
  measure("on the host, greedy:", {.temperature = 0.0}, Chooser::host);
  measure("on the card, greedy:", {.temperature = 0.0}, Chooser::card);
  measure("on the card, temperature 1:", {}, Chooser::card);
  measure("on the card, top-p 0.95:", {.top_p = 0.95}, Chooser::card);
  measure("on the card, 20 log-probabilities:", {.top_logprobs = 20}, Chooser::card);
}

/// Prints the time from the tokens of a step to those of the next where each step begins before the
/// tokens of the one before are read, as those of an engine do, but without one.
void Bench::overlapped(int batch) {
  const auto count = static_cast<size_t>(batch);
  const std::vector<int32_t> unread(count, 0);
  const auto measure = [&](const char* name, const SamplingParams& params) {
    std::vector<double> step_us;
    std::vector<std::vector<int32_t>> said(count);
    Clock::time_point last;
    for (int step = 0; step < kOverlapped; ++step) {
      Batch b = step_batch(unread, context + step, pages_each);
      for (int32_t row = 0; step > 0 && row < batch; ++row) b.carried.push_back(row);
      const Residual h = run_layers(backend, config, b);
      if (step > 0) {
        const HeadOutput out = backend.end_head();
        for (size_t i = 0; i < count; ++i) said[i].push_back(out.chosen[i].token);
        if (step > 1) step_us.push_back(1e3 * ms_since(last));
        last = Clock::now();
      }
      for (size_t i = 0; i < count; ++i)
        b.choices.push_back(Sampler::choice_of(params,
                                               {.generated = said[i], .serial = served + i + 1},
                                               static_cast<uint64_t>(step) * count + i));
      CHECK(backend.begin_head(b, h), "a pass of ", batch, " rows is not recorded");
    }
    backend.end_head();
    served += count;
    std::sort(step_us.begin(), step_us.end());
    const double pass_us = cuda::recorded_pass_us(backend, {.rows = batch, .sequences = batch}, 20);
    const double median_us = step_us[step_us.size() / 2];
    std::printf("batch %3d, %-44s step %8.1f us, the recorded pass is %5.1f %% of it\n", batch,
                name, median_us, 100.0 * pass_us / median_us);
    std::fflush(stdout);
  };
  measure("overlapped, greedy:", {.temperature = 0.0});
  measure("overlapped, top-k 20, top-p 0.95:", {.top_k = 20, .top_p = 0.95});
}

void Bench::parts(int batch) {
  const cuda::Extent extent{.rows = batch, .sequences = batch};
  const auto measure = [&](uint32_t skipped) {
    reserve(skipped);
    std::vector<int32_t> tokens(static_cast<size_t>(batch));
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * 997 % 100000);
    forward(backend, config, step_batch(tokens, context, pages_each));
    return std::min(cuda::recorded_pass_us(backend, extent, 20),
                    cuda::recorded_pass_us(backend, extent, 20));
  };
  const double all = measure(0);
  std::printf("batch %d, the pass without a step is shorter by (us, of %.1f):\n", batch, all);
  for (int step = 0; step < cuda::kStepCount; ++step) {
    // Without lists, experts would read whatever lies there.
    if (step == static_cast<int>(cuda::Step::route)) continue;
    std::printf("  %-12s %8.1f\n", cuda::kStepNames[step], all - measure(1U << step));
  }
  std::fflush(stdout);
}

/// A prompt of `rows` tokens in one pass, on an empty context.
void prefill(Backend& backend, const ModelConfig& config, int rows, uint32_t skipped) {
  cuda::skip_steps(backend, skipped);
  const int pages = (rows + kPageTokens - 1) / kPageTokens;
  backend.reserve({.pages = pages, .state_slots = 1, .rows_max = rows}).value();
  std::mt19937 engine(3);
  Batch batch;
  for (int i = 0; i < rows; ++i)
    batch.tokens.push_back(
        static_cast<int32_t>(engine() % static_cast<unsigned>(config.vocab_rows)));
  for (int axis = 0; axis < 3; ++axis)
    for (int i = 0; i < rows; ++i) batch.positions.push_back(i);
  batch.sequences = {{.row_count = rows, .page_count = pages}};
  for (int32_t p = 0; p < pages; ++p) batch.pages.push_back(p);
  batch.logit_rows = {rows - 1};
  std::vector<double> times;
  for (int i = 0; i < 5; ++i) {
    backend.zero_state(0);
    const auto begin = Clock::now();
    const HeadOutput out = forward(backend, config, batch);
    times.push_back(ms_since(begin));
    // A pass that leaves a step out reads what no kernel wrote, so its numbers mean nothing.
    if (skipped == 0 && !std::isfinite(out.logits[0])) std::printf("NaN in a prompt of %d\n", rows);
  }
  std::sort(times.begin(), times.end());
  std::printf("prompt of %6d: %8.2f ms (%.2f..%.2f), %8.0f tok/s%s\n", rows, times[2], times[0],
              times[4], rows / times[2] * 1e3, skipped ? "" : ", all steps");
  std::fflush(stdout);
}

Result<FormatOf> formats_named(const std::string& recipe, const Json& config) {
  if (recipe == "declared") return declared_formats(config);
  return formats_of(TRY(parse_weight_layout(recipe)));
}

int run(int argc, char** argv) {
  const std::string recipe_name = argc > 2 ? argv[2] : "mixed";
  const std::string text = read_text_file(argv[1], uint64_t{1} << 20).value();
  const Json json = parse_json(text, argv[1]).value();
  const Result<FormatOf> formats = formats_named(recipe_name, json);
  if (!formats.ok()) {
    std::fprintf(stderr, "%s\n", formats.error().message.c_str());
    return 2;
  }
  const int context = argc > 3 ? std::atoi(argv[3]) : 2048;
  const int steps = argc > 4 ? std::atoi(argv[4]) : 16;
  const std::string batches = argc > 5 ? argv[5] : "1,8,32,64";
  const std::string part_batches = argc > 6 ? argv[6] : "1,64";
  const ModelConfig config = ModelConfig::parse(json).value();
  const auto begin = Clock::now();
  const std::string pages = argc > 8 ? argv[8] : "bf16";
  const bool half = argc > 9 && std::string(argv[9]) == "bf16";
  const bool portable = argc > 10 && std::string(argv[10]) == "portable";
  const auto* kind = std::ranges::find(kKvCaches, pages, kv_cache_name);
  if (kind == std::end(kKvCaches)) {
    std::fprintf(stderr, "pages %s: expected a word of --kv-cache-dtype\n", pages.c_str());
    return 2;
  }
  const BackendOptions options = {.kv_cache = *kind,
                                  .state = half ? StateCache::bf16 : StateCache::f32,
                                  .card = {.portable_kernels = portable}};
  auto backend = make_random_cuda_backend(config, formats.value(), options).value();
  std::printf("%s, recipe %s, context %d, made in %.1f s\n", backend->description().c_str(),
              recipe_name.c_str(), context, ms_since(begin) * 1e-3);
  int batch_max = 1;
  const auto each = [](const std::string& list, const auto& call) {
    for (size_t at = 0; at < list.size(); at = list.find(',', at) + 1) {
      call(std::atoi(list.c_str() + at));
      if (list.find(',', at) == std::string::npos) break;
    }
  };
  each(batches, [&](int batch) { batch_max = std::max(batch_max, batch); });
  const int pages_each = (context + std::max(steps, kOverlapped) + kPageTokens) / kPageTokens;
  Bench bench{.backend = *backend,
              .config = config,
              .formats = formats.value(),
              .context = context,
              .steps = steps,
              .options = options,
              .pools = {.pages = batch_max * pages_each,
                        .state_slots = batch_max,
                        .rows_max = std::max(batch_max, 64),
                        .host_pages = 1},
              .pages_each = pages_each};
  const auto reserve_begin = Clock::now();
  bench.reserve(0);
  std::printf("floors: bytes at %.2f TB/s, %s\n", bench.bandwidth.bytes_per_s * 1e-12,
              bench.bandwidth.source);
  std::printf("reserved in %.2f s\n", ms_since(reserve_begin) * 1e-3);
  each(batches, [&](int batch) { bench.decode(batch); });
  each(batches, [&](int batch) { bench.sampled(batch); });
  each(batches, [&](int batch) { bench.overlapped(batch); });
  if (part_batches != "0") each(part_batches, [&](int batch) { bench.parts(batch); });
  const std::string prompts = argc > 7 ? argv[7] : "2048,8192";
  if (prompts == "0") return 0;
  each(prompts, [&](int rows) { prefill(*backend, config, rows, 0); });
  for (int step = 0; step < cuda::kStepCount; ++step) {
    std::printf("without %-12s ", cuda::kStepNames[step]);
    prefill(*backend, config, 8192, 1U << step);
  }
  return 0;
}

}  // namespace
}  // namespace nibble

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(
        stderr,
        "decode_bench CONFIG.json [layout] [context] [steps] "
        "[batches] [batches whose steps are timed] [prompt lengths] [KV: as --kv-cache-dtype] "
        "[state: f32|bf16] [kernels: native|portable]\n");
    return 2;
  }
  return nibble::run(argc, argv);
}
