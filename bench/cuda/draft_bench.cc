// Decode speed with drafts of the MTP layer beside plain decoding without it, on random weights of
// a real shape made on the device, the layer loaded in each of some ways. Random weights accept
// nothing, so acceptance is forced: of the drafts of a round so many count as right as a draw from
// the given shares says, and the next round goes on from there. Each time is from a batch until its
// tokens are on the host. A plain step of a server with the layer keeps its entries too, which is
// told apart.
//   draft_bench CONFIG.json [layout: mixed] [context] [rounds] [batches]
//   [cumulative acceptance by place, "0.93,0.81,0.70": as many drafts a round]
//   [layers, "none,nvfp4,nvfp4:131072": none, fp8 or nvfp4, and the rows of a head of its own]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backend/cuda/cuda_backend.h"
#include "base/file.h"
#include "bench/draft_layers.h"
#include "engine/sample/sampler.h"
#include "model/forward.h"
#include "model/weights/synthetic_weights.h"

namespace nibble {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

double median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

struct Sequence {
  int32_t cached = 0;
  int32_t replay = 0;
  int32_t token = 0;
};

/// Sequences that generate, each with its own pages and slot.
class Bench {
 public:
  Bench(Backend& backend, const ModelConfig& config, int pages_each, std::vector<double> accepted)
      : backend_(backend),
        config_(config),
        pages_each_(pages_each),
        accepted_(std::move(accepted)) {}

  /// The median of a step of plain decoding, in milliseconds.
  double plain(int batch, int context, int rounds);
  /// Prints rounds of drafts beside such steps of `plain_ms`.
  void compare(int batch, int context, int rounds, double plain_ms);

 private:
  int32_t random_token() {
    return static_cast<int32_t>(engine_() % static_cast<unsigned>(config_.vocab_rows));
  }
  void restart(int batch, int context);
  Batch pass(const std::vector<std::vector<int32_t>>& rows, StateWrite write) const;
  double run(Batch& batch);
  double plain_step();
  DraftBatch drafts() const;
  /// Returns the milliseconds of drafting and of verifying, and adds the tokens that count.
  std::pair<double, double> round(int64_t& tokens);

  Backend& backend_;
  const ModelConfig& config_;
  int pages_each_;
  std::vector<double> accepted_;
  std::vector<Sequence> sequences_;
  std::mt19937 engine_{7};
};

void Bench::restart(int batch, int context) {
  sequences_.assign(static_cast<size_t>(batch), {.cached = context});
  for (Sequence& s : sequences_) s.token = random_token();
}

Batch Bench::pass(const std::vector<std::vector<int32_t>>& rows, StateWrite write) const {
  Batch batch;
  std::vector<int32_t> positions;
  for (size_t i = 0; i < sequences_.size(); ++i) {
    const Sequence& s = sequences_[i];
    const auto slot = static_cast<int32_t>(i);
    batch.sequences.push_back({.row_begin = batch.rows(),
                               .row_count = static_cast<int32_t>(rows[i].size()),
                               .kv_begin = s.cached,
                               .page_begin = slot * pages_each_,
                               .page_count = pages_each_,
                               .state_in = slot,
                               .state_out = slot,
                               .arithmetic = Arithmetic::generation,
                               .replay = s.replay,
                               .write = write,
                               .position_before = {s.cached - 1, s.cached - 1, s.cached - 1}});
    for (int32_t p = 0; p < pages_each_; ++p) batch.pages.push_back(slot * pages_each_ + p);
    for (size_t row = 0; row < rows[i].size(); ++row) {
      batch.logit_rows.push_back(batch.rows());
      batch.tokens.push_back(rows[i][row]);
      positions.push_back(s.cached + static_cast<int32_t>(row));
    }
  }
  for (int axis = 0; axis < 3; ++axis)
    batch.positions.insert(batch.positions.end(), positions.begin(), positions.end());
  return batch;
}

/// Greedy choices on the card.
double Bench::run(Batch& batch) {
  batch.choices.assign(batch.logit_rows.size(), TokenChoice());
  const auto begin = Clock::now();
  const HeadOutput out = forward(backend_, config_, batch);
  const double ms = ms_since(begin);
  for (const ChosenToken& chosen : out.chosen)
    if (!chosen.sound) std::printf("a row is not finite\n");
  return ms;
}

double Bench::plain_step() {
  std::vector<std::vector<int32_t>> rows;
  for (const Sequence& s : sequences_) rows.push_back({s.token});
  Batch batch = pass(rows, StateWrite::rows);
  const double ms = run(batch);
  for (Sequence& s : sequences_) s.token = random_token(), ++s.cached, s.replay = 0;
  return ms;
}

DraftBatch Bench::drafts() const {
  DraftBatch drafts;
  for (size_t i = 0; i < sequences_.size(); ++i) {
    const Sequence& s = sequences_[i];
    const auto slot = static_cast<int32_t>(i);
    drafts.sequences.push_back({.kv_begin = s.cached,
                                .page_begin = slot * pages_each_,
                                .page_count = pages_each_,
                                .state = slot,
                                .replay = s.replay,
                                .token = s.token,
                                .position_before = {s.cached - 1, s.cached - 1, s.cached - 1},
                                .position = s.cached,
                                .count = static_cast<int32_t>(accepted_.size())});
    for (int32_t p = 0; p < pages_each_; ++p) drafts.pages.push_back(slot * pages_each_ + p);
  }
  return drafts;
}

std::pair<double, double> Bench::round(int64_t& tokens) {
  const DraftBatch asked = drafts();
  const auto begin = Clock::now();
  const DraftOutput drafted = backend_.draft(asked);
  const double draft_ms = ms_since(begin);
  std::vector<std::vector<int32_t>> rows;
  for (size_t i = 0; i < sequences_.size(); ++i) {
    rows.push_back({sequences_[i].token});
    for (size_t n = 0; n < accepted_.size(); ++n)
      if (drafted.tokens[i * accepted_.size() + n] < 0) std::printf("a draft is not finite\n");
    // Random weights draft alike for all sequences; those of a model meet other experts.
    for (size_t n = 0; n < accepted_.size(); ++n) rows.back().push_back(random_token());
  }
  Batch batch = pass(rows, StateWrite::replayed);
  const double verify_ms = run(batch);
  std::uniform_real_distribution<double> share(0.0, 1.0);
  for (Sequence& s : sequences_) {
    const double draw = share(engine_);
    const auto right = std::ranges::count_if(accepted_, [&](double p) { return draw < p; });
    s.replay = static_cast<int32_t>(right) + 1;
    s.cached += s.replay;
    s.token = random_token();
    tokens += s.replay;
  }
  return {draft_ms, verify_ms};
}

double Bench::plain(int batch, int context, int rounds) {
  restart(batch, context);
  std::vector<double> plain;
  for (int i = 0; i < rounds; ++i) plain.push_back(plain_step());
  return median(plain);
}

void Bench::compare(int batch, int context, int rounds, double plain_ms) {
  restart(batch, context);
  std::vector<double> draft, verify;
  int64_t tokens = 0;
  for (int i = 0; i < rounds; ++i) {
    const auto [draft_ms, verify_ms] = round(tokens);
    draft.push_back(draft_ms);
    verify.push_back(verify_ms);
  }
  const double each = static_cast<double>(tokens) / (static_cast<double>(rounds) * batch);
  const double round_ms = median(draft) + median(verify);
  std::printf(
      "  batch %3d: plain step %7.3f ms, %8.1f tok/s; round %7.3f ms (%zu drafts %.3f, verify "
      "%.3f), %.2f tokens, %8.1f tok/s: %.2f times plain\n",
      batch, plain_ms, batch / plain_ms * 1e3, round_ms, accepted_.size(), median(draft),
      median(verify), each, each * batch / round_ms * 1e3, each * plain_ms / round_ms);
  std::fflush(stdout);
}

struct Sizes {
  FormatOf formats;
  int context = 0;
  int rounds = 0;
  std::vector<double> batches;
  std::vector<double> accepted;

  int batch_max() const { return static_cast<int>(*std::ranges::max_element(batches)); }
  /// Rows of a pass of one sequence.
  int each() const { return static_cast<int>(accepted.size()) + 1; }
  int pages_each() const { return (context + rounds * each() + 2 * kPageTokens) / kPageTokens; }
};

/// A backend with pages of numbers below 2 in size.
std::unique_ptr<Backend> open(const ModelConfig& config, const Sizes& sizes) {
  auto backend = make_random_cuda_backend(config, sizes.formats, {}).value();
  const auto begin = Clock::now();
  const int pages = sizes.batch_max() * sizes.pages_each();
  backend
      ->reserve({.pages = pages,
                 .state_slots = sizes.batch_max(),
                 .rows_max = std::max(sizes.batch_max() * sizes.each(), 64),
                 .host_pages = 1,
                 .replay_rows = sizes.each(),
                 .sequences_max = sizes.batch_max()})
      .value();
  std::printf("%s; reserved in %.2f s\n", backend->description().c_str(), ms_since(begin) * 1e-3);
  std::mt19937 engine(1);
  for (size_t i = 0; auto& b : backend->host_page(0))
    b = static_cast<std::byte>(i++ % 2 == 1 ? (engine() & 0xBFU) : engine());
  for (int32_t p = 0; p < pages; ++p) backend->load_page(0, p);
  return backend;
}

int main_of(int argc, char** argv) {
  const auto word = [&](int index, const char* fallback) {
    return std::string(argc > index ? argv[index] : fallback);
  };
  const Sizes sizes{.formats = formats_of(parse_weight_layout(word(2, "mixed")).value()),
                    .context = std::atoi(word(3, "2048").c_str()),
                    .rounds = std::atoi(word(4, "40").c_str()),
                    .batches = numbers_of(word(5, "1,8,32,64")),
                    .accepted = numbers_of(word(6, "0.93,0.81,0.70"))};
  const std::string text = read_text_file(argv[1], uint64_t{1} << 20).value();
  ModelConfig config = ModelConfig::parse(parse_json(text, argv[1]).value()).value();
  std::vector<double> plain;
  {
    const auto backend = open(config, sizes);
    Bench bench(*backend, config, sizes.pages_each(), sizes.accepted);
    for (const double batch : sizes.batches)
      plain.push_back(bench.plain(static_cast<int>(batch), sizes.context, sizes.rounds));
  }
  for (const std::string& layer : words_of(word(7, "none,nvfp4,nvfp4:131072,nvfp4:32768"))) {
    load_layer_as(layer, config);
    const auto backend = open(config, sizes);
    std::printf("layer %s\n", layer.c_str());
    Bench bench(*backend, config, sizes.pages_each(), sizes.accepted);
    for (size_t i = 0; i < sizes.batches.size(); ++i) {
      const int batch = static_cast<int>(sizes.batches[i]);
      const double kept = bench.plain(batch, sizes.context, sizes.rounds);
      std::printf("  batch %3d: plain step that keeps the layer's entries %7.3f ms (%+.1f %%)\n",
                  batch, kept, 100.0 * (kept / plain[i] - 1.0));
      bench.compare(batch, sizes.context, sizes.rounds, plain[i]);
    }
  }
  return 0;
}

}  // namespace
}  // namespace nibble

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr,
                 "draft_bench CONFIG.json [layout: mixed] [context] [rounds] [batches] "
                 "[cumulative acceptance by place] [layers]\n");
    return 2;
  }
  return nibble::main_of(argc, argv);
}
