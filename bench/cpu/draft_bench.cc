// Measures how much drafts of the MTP layer gain on a CPU for all layers of a model, from a slice
// of it that `nibble synth --layers` wrote: the processor time (all threads, user and system) of a
// plain step and of a pass that verifies drafts, each without its head and with it, and of
// drafting, in each of some ways to load the layer. Layers are alike in fours, so those of the
// model take as many times the slice's as it has more. Acceptance is assumed, since random weights
// accept nothing.
//   cpu_draft_bench DIR [threads] [isa] [layers of the model] [steps]
//   [cumulative acceptance by place, "0.93,0.81,0.70"] [layers, "none,nvfp4,nvfp4:131072"]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "base/thread_pool.h"
#include "bench/draft_layers.h"
#include "bench/processor_time.h"
#include "model/forward.h"
#include "model/weights/fused_linears.h"
#include "model/weights/rounded_draft.h"

namespace nibble {
namespace {

constexpr int kCached = 128;  // tokens before a step
constexpr int kPages = 8;

/// One sequence; ids change from step to step, so that the experts do.
class Bench {
 public:
  Bench(Backend& backend, const ModelConfig& config, int rows)
      : backend_(backend), config_(config) {
    backend_
        .reserve({.pages = kPages,
                  .state_slots = 1,
                  .rows_max = 64,
                  .replay_rows = rows,
                  .sequences_max = 1})
        .value();
    backend_.zero_state(0);
  }

  enum class Head : uint8_t { left_out, computed };
  /// Milliseconds of a pass of `rows` generated rows, which are drafts if there are several.
  double pass(int rows, Head head) {
    return timed([&] {
      Batch batch;
      const bool drafted = rows > 1;
      for (int i = 0; i < rows; ++i) {
        batch.tokens.push_back(token());
        if (head == Head::computed) batch.logit_rows.push_back(i);
      }
      batch.sequences = {{.row_count = rows,
                          .kv_begin = kCached,
                          .page_count = kPages,
                          .arithmetic = Arithmetic::generation,
                          .replay = drafted ? saved_ : 0,
                          .write = drafted ? StateWrite::replayed : StateWrite::rows,
                          .position_before = {kCached - 1, kCached - 1, kCached - 1}}};
      for (int32_t page = 0; page < kPages; ++page) batch.pages.push_back(page);
      for (int axis = 0; axis < 3; ++axis)
        for (int i = 0; i < rows; ++i) batch.positions.push_back(kCached + i);
      forward(backend_, config_, batch);
      if (drafted) saved_ = rows;
    });
  }
  /// Milliseconds of a draft of `count` tokens.
  double draft(int count) {
    return timed([&] {
      DraftBatch batch;
      batch.sequences = {{.kv_begin = kCached,
                          .page_count = kPages,
                          .token = token(),
                          .position_before = {kCached - 1, kCached - 1, kCached - 1},
                          .position = kCached,
                          .count = count}};
      for (int32_t page = 0; page < kPages; ++page) batch.pages.push_back(page);
      backend_.draft(batch);
    });
  }

 private:
  int32_t token() {
    random_ = random_ * 1664525U + 1013904223U;
    return static_cast<int32_t>((random_ >> 8) % static_cast<uint32_t>(config_.vocab_rows));
  }
  template <typename Step>
  static double timed(const Step& step) {
    const double begin = cpu_seconds();
    step();
    return (cpu_seconds() - begin) * 1e3;
  }

  Backend& backend_;
  const ModelConfig& config_;
  int32_t saved_ = 0;  // inputs of a pass that the next one of drafts replays
  uint32_t random_ = 7;
};

/// Milliseconds of the steps of one kind.
class Times {
 public:
  void add(double ms) { times_.push_back(ms); }
  double median() const {
    std::vector<double> sorted = times_;
    std::ranges::sort(sorted);
    return sorted[sorted.size() / 2];
  }

 private:
  std::vector<double> times_;
};

/// Steps of one row and of all rows, without the head and with it, without the layer; then of all
/// rows and of drafts, with it.
struct StepTimes {
  Times one, one_and_head, all, all_and_head, kept, draft;
};

/// A model with each of some layers against the same without.
struct Comparison {
  const Checkpoint& checkpoint;
  ModelConfig config;
  BackendOptions options;
  double times = 1.0;  // layers of the model for each of the slice
  int steps = 0;
  std::vector<double> accepted;  // by place, cumulative
  std::unique_ptr<Backend> plain = {};

  int drafts() const { return static_cast<int>(accepted.size()); }
  void load_without();
  void measure_with(const std::string& layer) const;
  void print(const StepTimes& taken) const;
};

void Comparison::load_without() {
  const Weights weights = Weights::bind(checkpoint, config).value();
  const double begin = cpu_seconds();
  plain = make_cpu_backend(weights, config, options).value();
  std::printf("%s, %d layers, loaded in %.2f s\n", plain->description().c_str(),
              config.layer_count(), cpu_seconds() - begin);
}

/// Steps of all kinds take turns, so that a machine that is busy is so for all of them.
void Comparison::measure_with(const std::string& layer) const {
  ModelConfig drafting = config;
  load_layer_as(layer, drafting);
  ThreadPool pool(options.threads);
  const double begin = cpu_seconds();
  const auto rounded =
      RoundedDraft::make(Weights::bind(checkpoint, drafting).value(), drafting, pool).value();
  const double scaled = cpu_seconds();
  const Weights weights = rounded->weights();
  for (const FusedLinears& group : fused_linears(*weights.mtp()))
    for (const LinearSource* linear : group) weights.load(*linear).value();
  std::printf("layer %s: scales found in %.2f s, its rows made in %.2f s\n", layer.c_str(),
              scaled - begin, cpu_seconds() - scaled);
  const auto backend = make_cpu_backend(weights, drafting, options).value();
  const int rows = drafts() + 1;
  Bench without(*plain, config, rows), with(*backend, drafting, rows);
  StepTimes taken;
  for (int i = 0; i < steps; ++i) {
    taken.one.add(without.pass(1, Bench::Head::left_out));
    taken.all.add(without.pass(rows, Bench::Head::left_out));
    taken.kept.add(with.pass(rows, Bench::Head::left_out));
    taken.draft.add(with.draft(drafts()));
    taken.one_and_head.add(without.pass(1, Bench::Head::computed));
    taken.all_and_head.add(without.pass(rows, Bench::Head::computed));
  }
  print(taken);
}

void Comparison::print(const StepTimes& taken) const {
  const double one = taken.one.median(), all = taken.all.median(), draft = taken.draft.median();
  const double head = taken.one_and_head.median() - one;
  const double heads = taken.all_and_head.median() - all;
  const double entries = taken.kept.median() - all;
  const double plain_ms = times * one + head;
  const double round_ms = times * all + entries + heads + draft;
  const double tokens = std::accumulate(accepted.begin(), accepted.end(), 1.0);
  std::printf("  plain: layers %.2f ms, head %.2f ms; of the model %.1f ms\n", one, head, plain_ms);
  std::printf(
      "  round: %d rows %.2f ms, heads %.2f ms, entries %.2f ms, %d drafts %.2f ms; of the "
      "model %.1f ms, %.2f tokens: %.2f times plain\n",
      drafts() + 1, all, heads, entries, drafts(), draft, round_ms, tokens,
      tokens * plain_ms / round_ms);
  std::fflush(stdout);
}

int main_of(int argc, char** argv) {
  const auto word = [&](int index, const char* fallback) {
    return std::string(argc > index ? argv[index] : fallback);
  };
  const Checkpoint checkpoint = Checkpoint::open(argv[1]).value();
  const ModelConfig config = ModelConfig::parse(checkpoint.config()).value();
  Comparison comparison{.checkpoint = checkpoint,
                        .config = config,
                        .options = {.threads = std::stoi(word(2, "2")), .isa = word(3, "")},
                        .times = std::stod(word(4, "40")) / config.layer_count(),
                        .steps = std::stoi(word(5, "40")),
                        .accepted = numbers_of(word(6, "0.93,0.81,0.70"))};
  comparison.load_without();
  for (const std::string& layer : words_of(word(7, "none,nvfp4,nvfp4:131072,nvfp4:32768")))
    comparison.measure_with(layer);
  return 0;
}

}  // namespace
}  // namespace nibble

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr,
                 "cpu_draft_bench DIR [threads] [isa] [layers of the model] [steps] [cumulative "
                 "acceptance by place] [layers]\n");
    return 2;
  }
  return nibble::main_of(argc, argv);
}
