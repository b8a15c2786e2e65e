// Times of the backward sweep's kernels at the shapes of the 35B: a pass of eight samples of 2,048
// tokens, and the sum over the four layers and 131,072 tokens of bench/quantize/slice_35b.py.
#include <string>

#include "backend/cuda/checks/check_parts.h"
#include "backend/cuda/ops/gradient/gradient_attention.h"
#include "backend/cuda/ops/gradient/gradient_delta.h"
#include "backend/cuda/ops/gradient/gradient_moe.h"
#include "backend/cuda/ops/gradient/gradient_operands.h"
#include "backend/cuda/ops/gradient/gradient_rows.h"
#include "gradient_check.h"

namespace nibble::bench {
namespace {

using namespace nibble::checks;
using namespace nibble::cuda;

constexpr int kRows = 16384, kLength = 2048, kHidden = 2048, kExperts = 256, kTopK = 8;
constexpr int kAssignments = kRows * kTopK, kWidth = 512, kVocabulary = 248320;
constexpr int kLogitRows = 2048;  // rows whose logits are in memory at once
constexpr int kPasses = 8, kDeltaLayers = 3, kAttentionLayers = 1, kLayers = 4;

/// Prints times and adds up what the slice takes of each.
class Times {
 public:
  explicit Times(Tally& tally) : tally_(tally) {}
  ~Times() { tally_.print("all of these in the slice: %.2f s", total_us_ / 1e6); }

  /// `count`: calls in the slice; `work`: FLOPs, or bytes if `unit` is "TB/s".
  void add(const std::string& name, double count, double work, const char* unit,
           const std::function<void()>& run) {
    const double us = time_us(run, 2);
    must(cudaGetLastError(), name.c_str());
    total_us_ += count * us;
    tally_.print("%-34s %9.0f us %8.1f %-8s %6.0f calls %7.0f ms", name.c_str(), us,
                 work / us / 1e6, unit, count, count * us / 1e3);
  }

 private:
  Tally& tally_;
  double total_us_ = 0.0;
};

/// Device memory that is given back.
template <typename T>
struct Array {
  T* at;
  explicit Array(int64_t count) : at(device_array<T>(count)) {}
  ~Array() { cudaFree(at); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
};
struct Floats : Array<float> {
  explicit Floats(int64_t count, float scale = 1.0F, float shift = 0.0F) : Array(count) {
    fill_normal(at, count, 1, scale, shift);
  }
};

struct Experts {
  Array<int32_t> row{kAssignments}, tile_count{1};
  Array<ExpertTile> tiles{kAssignments / kTileTokens + kExperts};

  Experts() {
    std::vector<int> counts(kExperts);
    for (int i = 0; i < kAssignments; ++i) ++counts[hash_bits(3, i) % kExperts];
    std::vector<ExpertTile> made;
    int32_t begin = 0;
    for (int e = 0; e < kExperts; ++e) {
      for (int i = 0; i < counts[e]; i += kTileTokens)
        made.push_back({e, begin + i, std::min(kTileTokens, counts[e] - i)});
      begin += counts[e];
    }
    std::vector<int32_t> rows(kAssignments);
    for (int i = 0; i < kAssignments; ++i) rows[i] = static_cast<int32_t>(hash_bits(5, i) % kRows);
    const auto count = static_cast<int32_t>(made.size());
    must(cudaMemcpy(row.at, rows.data(), rows.size() * 4, cudaMemcpyHostToDevice), "rows");
    must(
        cudaMemcpy(tiles.at, made.data(), made.size() * sizeof(ExpertTile), cudaMemcpyHostToDevice),
        "tiles");
    must(cudaMemcpy(tile_count.at, &count, 4, cudaMemcpyHostToDevice), "count");
  }
};

void time_products(Times& times) {
  const Launcher launcher = launcher_of(Kernels::native);
  gradient_product_prepare(launcher);
  struct Shape {
    const char* name;
    int n, k;
    double count;  // in the slice
  };
  const double delta = kPasses * kDeltaLayers, attention = kPasses * kAttentionLayers,
               all = kPasses * kLayers;
  for (const Shape& s :
       {Shape{"qkv of delta net forward", 8192, 2048, 2 * delta},
        Shape{"qkv of delta net backward", 2048, 8192, delta},
        Shape{"z forward, out backward", 4096, 2048, 3 * delta},
        Shape{"z backward, out forward", 2048, 4096, 3 * delta},
        Shape{"q and gate forward", 8192, 2048, 2 * attention},
        Shape{"q and gate backward", 2048, 8192, attention},
        Shape{"o forward", 2048, 4096, 2 * attention}, Shape{"o backward", 4096, 2048, attention},
        Shape{"k, v forward", 512, 2048, 4 * attention},
        Shape{"k, v backward, shared backward", 2048, 512, 2 * attention + 2 * all},
        Shape{"shared forward, down backward", 512, 2048, 5 * all},
        Shape{"router forward, a, b", 256, 2048, 2 * all + 4 * delta},
        Shape{"router backward, a, b", 2048, 256, all + 2 * delta}}) {
    Array<uint16_t> x(int64_t{kRows} * 2 * s.k), w(int64_t{s.n} * s.k);
    Floats out(int64_t{kRows} * s.n);
    fill_normal(x.at, int64_t{kRows} * 2 * s.k, 1, 1.0F);
    fill_normal(w.at, int64_t{s.n} * s.k, 2, 0.02F);
    DeviceLinear weight;
    weight.values = reinterpret_cast<const uint8_t*>(w.at);
    weight.rows = s.n;
    weight.cols = s.k;
    times.add(s.name, s.count, 4.0 * kRows * s.n * s.k, "TFLOP/s", [&] {
      gradient_product({.x = {x.at, s.k}, .weight = weight, .out = out.at, .rows = kRows},
                       launcher);
    });
  }
}

void time_expert_products(Times& times) {
  const Launcher launcher = launcher_of(Kernels::native);
  const Experts experts;
  const double calls = kPasses * kLayers;
  const int64_t numbers = int64_t{kExperts} * kWidth * kHidden;
  Array<uint16_t> w(numbers), wide(int64_t{kRows} * 2 * kHidden),
      narrow(int64_t{kAssignments} * 2 * kWidth);
  Array<uint8_t> turned(2 * numbers);
  Floats out(int64_t{kAssignments} * kHidden);
  fill_normal(w.at, numbers, 2, 0.02F);
  fill_normal(wide.at, int64_t{kRows} * 2 * kHidden, 3, 1.0F);
  fill_normal(narrow.at, int64_t{kAssignments} * 2 * kWidth, 4, 1.0F);
  DeviceLinear up, down;
  up.values = down.values = reinterpret_cast<const uint8_t*>(w.at);
  up.rows = down.cols = kWidth;
  up.cols = down.rows = kHidden;
  const double flops = 4.0 * kAssignments * kWidth * kHidden;
  GradientProduct product{.x = {wide.at, kHidden},
                          .gather = experts.row.at,
                          .weight = up,
                          .out = out.at,
                          .rows = kAssignments,
                          .tiles = experts.tiles.at,
                          .tile_count = experts.tile_count.at};
  times.add("experts, to their width", 5 * calls, flops, "TFLOP/s",
            [&] { gradient_product(product, launcher); });
  product.x = {narrow.at, kWidth};
  product.gather = nullptr;
  product.weight = down;
  times.add("experts, from their width", 2 * calls, flops, "TFLOP/s",
            [&] { gradient_product(product, launcher); });
  product.result = ProductResult::added;
  times.add("experts, from their width, added", calls, flops, "TFLOP/s",
            [&] { gradient_product(product, launcher); });
  times.add("transpose a stack of experts", 3 * kLayers, 4.0 * numbers, "TB/s", [&] {
    transpose_matrices({.weight = up, .cols = kHidden, .stack = kExperts}, turned.at, nullptr);
  });
}

void time_head(Times& times) {
  const Launcher launcher = launcher_of(Kernels::native);
  const double calls = kPasses * kRows / kLogitRows;
  const int64_t numbers = int64_t{kVocabulary} * kHidden,
                logits = int64_t{kLogitRows} * kVocabulary;
  Array<uint16_t> w(numbers), x(int64_t{kLogitRows} * 2 * kHidden), split(2 * logits);
  Array<double> squares(kLogitRows), random(kLogitRows);
  Floats out(logits), dx(int64_t{kLogitRows} * kHidden);
  fill_normal(w.at, numbers, 2, 0.02F);
  fill_normal(x.at, int64_t{kLogitRows} * 2 * kHidden, 3, 1.0F);
  const std::vector<double> half(kLogitRows, 0.5);
  must(cudaMemcpy(random.at, half.data(), half.size() * 8, cudaMemcpyHostToDevice), "random");
  DeviceLinear head, back;
  head.values = back.values = reinterpret_cast<const uint8_t*>(w.at);
  head.rows = back.cols = kVocabulary;
  head.cols = back.rows = kHidden;
  const double flops = 4.0 * kLogitRows * numbers;
  times.add("head forward", calls, flops, "TFLOP/s", [&] {
    gradient_product({.x = {x.at, kHidden}, .weight = head, .out = out.at, .rows = kLogitRows},
                     launcher);
  });
  times.add("labels", calls, 12.0 * logits, "TB/s", [&] {
    must(label_gradient({out.at, random.at, kLogitRows, kVocabulary, kVocabulary}, split.at,
                        squares.at, nullptr),
         "labels");
  });
  times.add("head backward", calls, flops, "TFLOP/s", [&] {
    gradient_product(
        {.x = {split.at, kVocabulary}, .weight = back, .out = dx.at, .rows = kLogitRows}, launcher);
  });
}

struct Pass {
  Array<SampleOfRow> of_row{kRows};
  Array<DeltaSample> samples{kRows / kLength};

  Pass() {
    std::vector<SampleOfRow> rows;
    std::vector<DeltaSample> all;
    for (int32_t begin = 0; begin < kRows; begin += kLength) {
      all.push_back({begin, kLength, begin / kGradientChunk});
      rows.resize(rows.size() + kLength, {begin, begin + kLength});
    }
    must(cudaMemcpy(of_row.at, rows.data(), rows.size() * sizeof(SampleOfRow),
                    cudaMemcpyHostToDevice),
         "rows");
    must(cudaMemcpy(samples.at, all.data(), all.size() * sizeof(DeltaSample),
                    cudaMemcpyHostToDevice),
         "samples");
  }
};

void time_delta(Times& times, const Pass& pass) {
  constexpr int kKeyHeads = 16, kHeads = 32, kDim = 128, kChannels = 8192, kBlocks = 264;
  const GradientDelta shape{.rows = kRows,
                            .k_heads = kKeyHeads,
                            .v_heads = kHeads,
                            .k_dim = kDim,
                            .v_dim = kDim,
                            .taps = 4,
                            .sample_of_row = pass.of_row.at,
                            .samples = pass.samples.at,
                            .sample_count = kRows / kLength};
  const int64_t keys = int64_t{kRows} * kKeyHeads * kDim, values = int64_t{kRows} * kHeads * kDim;
  Floats q(keys, 0.09F), k(keys, 0.09F), active(int64_t{kRows} * kChannels),
      alpha(kRows * kHeads, 0.03F, 0.9F), beta(kRows * kHeads, 0.1F, 0.5F), mixed(values),
      dq(values), dk(values), dactive(int64_t{kRows} * kChannels), dalpha(kRows * kHeads),
      dbeta(kRows * kHeads), convolved(int64_t{kRows} * kChannels), conv(kChannels * 4);
  Floats starts(kRows / kGradientChunk * int64_t{kHeads} * delta_state_floats(kDim), 0.1F),
      scratch(kBlocks * delta_scratch_floats(kDim));
  const DeltaRows rows{q.at, k.at, active.at, alpha.at, beta.at};
  const double layers = kPasses * kDeltaLayers, state = 1.0 * values * kDim;
  times.add("delta rule forward", layers, 7 * state, "TFLOP/s",
            [&] { must(delta_forward(shape, rows, mixed.at, nullptr, nullptr), "delta forward"); });
  times.add("delta rule forward, keeps states", layers, 7 * state, "TFLOP/s", [&] {
    must(delta_forward(shape, rows, mixed.at, starts.at, nullptr), "delta forward");
  });
  const DeltaBack back{.starts = starts.at,
                       .dmixed = mixed.at,
                       .scratch = scratch.at,
                       .blocks = kBlocks,
                       .shared_bytes = launcher_of(Kernels::native).card.shared_bytes,
                       .dq = dq.at,
                       .dk = dk.at,
                       .dactive = dactive.at,
                       .dalpha = dalpha.at,
                       .dbeta = dbeta.at};
  times.add("delta rule backward", layers, 24 * state, "TFLOP/s",
            [&] { must(delta_backward(shape, rows, back, nullptr), "delta backward"); });
  times.add("convolution forward", 2 * layers, 12.0 * kRows * kChannels, "TB/s", [&] {
    must(convolve_forward(shape, conv.at, active.at, convolved.at, dactive.at, nullptr), "conv");
  });
  times.add("convolution backward", layers, 20.0 * kRows * kChannels, "TB/s", [&] {
    must(convolve_backward(shape, conv.at, convolved.at, dactive.at, active.at, nullptr), "conv");
  });
  times.add("unit lengths", 2 * layers, 16.0 * keys, "TB/s",
            [&] { must(unit_lengths(shape, active.at, q.at, k.at, nullptr), "unit"); });
  times.add("unit lengths backward", layers, 32.0 * keys, "TB/s", [&] {
    must(unit_lengths_back(shape, active.at, dq.at, dk.at, dactive.at, nullptr), "unit");
  });
}

void time_attention(Times& times, const Pass& pass) {
  constexpr int kHeads = 16, kKvHeads = 2, kDim = 256;
  const GradientAttention shape{.rows = kRows,
                                .q_heads = kHeads,
                                .kv_heads = kKvHeads,
                                .head_dim = kDim,
                                .shared_bytes = launcher_of(Kernels::native).card.shared_bytes,
                                .samples = pass.of_row.at};
  const int64_t wide = int64_t{kRows} * kHeads * kDim, narrow = int64_t{kRows} * kKvHeads * kDim;
  Floats q(wide), k(narrow), v(narrow), mixed(wide), dmixed(wide), dq(wide), dk(narrow), dv(narrow),
      log_sum(kRows * kHeads), along(kRows * kHeads);
  const AttentionRows rows{q.at, k.at, v.at};
  const double layers = kPasses * kAttentionLayers;
  const double pairs = 0.5 * kRows * kLength * kHeads * kDim;
  times.add("attention forward", 2 * layers, 12 * pairs, "TFLOP/s",
            [&] { must(attend_forward(shape, rows, mixed.at, log_sum.at, nullptr), "attention"); });
  const AttentionBack back{mixed.at, log_sum.at, dmixed.at, along.at, dq.at, dk.at, dv.at};
  times.add("attention backward", layers, 48 * pairs, "TFLOP/s",
            [&] { must(attend_backward(shape, rows, back, nullptr), "attention"); });
}

void time_rows(Times& times) {
  const Experts experts;
  const double calls = kPasses * kLayers;
  const int64_t wide = int64_t{kRows} * kHidden, narrow = int64_t{kAssignments} * kWidth;
  Floats a(narrow), b(narrow), c(narrow), d(narrow), weight(kAssignments), dweight(kAssignments);
  Array<uint16_t> split(2 * narrow);
  Array<double> squares(kAssignments);
  times.add("rows of hidden numbers in parts", 6 * calls, 8.0 * wide, "TB/s", [&] {
    must(split_rows({a.at, kRows, kHidden, kHidden}, split.at, nullptr), "split");
  });
  times.add("rows of experts in parts", 3 * calls, 8.0 * narrow, "TB/s", [&] {
    must(split_rows({a.at, kAssignments, kWidth, kWidth}, split.at, nullptr), "split");
  });
  times.add("SwiGLU of experts", 2 * calls, 12.0 * narrow, "TB/s",
            [&] { must(swiglu_forward(a.at, b.at, c.at, narrow, nullptr), "swiglu"); });
  times.add("SwiGLU of experts backward", calls, 20.0 * narrow, "TB/s", [&] {
    must(swiglu_backward(a.at, b.at, c.at, d.at, c.at, narrow, nullptr), "swiglu");
  });
  const WeighedRows rows{
      .count = kAssignments, .width = kWidth, .gather = experts.row.at, .weight = weight.at};
  times.add("weights of experts backward", calls, 12.0 * narrow, "TB/s",
            [&] { must(weigh_backward(rows, a.at, b.at, dweight.at, nullptr), "weigh"); });
  times.add("lengths of hidden rows", 6 * calls, 4.0 * wide, "TB/s", [&] {
    must(squared_lengths(a.at, nullptr, kRows, kHidden, squares.at, nullptr), "lengths");
  });
  times.add("lengths of experts' rows", 3 * calls, 4.0 * narrow, "TB/s", [&] {
    must(squared_lengths(a.at, nullptr, kAssignments, kWidth, squares.at, nullptr), "lengths");
  });
  const GradientNorm norm{.weight = weight.at, .eps = 1e-6F, .rows = kRows, .width = kHidden};
  times.add("norm", 4 * calls, 8.0 * wide, "TB/s", [&] {
    must(norm_forward(norm, {a.at, kHidden, 0}, {b.at, kHidden, 0}, nullptr), "norm");
  });
  times.add("norm backward", 2 * calls, 16.0 * wide, "TB/s", [&] {
    must(norm_backward(norm, {a.at, kHidden, 0}, {b.at, kHidden, 0}, {c.at, kHidden, 0}, nullptr),
         "norm");
  });
  const GradientRouter router{.rows = kRows, .experts = kExperts, .top_k = kTopK};
  Floats y(int64_t{kAssignments} * kHidden);
  std::vector<int32_t> slot(kAssignments);
  for (int i = 0; i < kAssignments; ++i) slot[i] = (i * 7919) % kAssignments;
  Array<int32_t> slots(kAssignments);
  must(cudaMemcpy(slots.at, slot.data(), slot.size() * 4, cudaMemcpyHostToDevice), "slots");
  const Assignments at{.count = kAssignments,
                       .row = experts.row.at,
                       .expert = nullptr,
                       .weight = weight.at,
                       .slots = slots.at};
  times.add("outputs of experts added up", 2 * calls, 4.0 * (kTopK + 1) * wide, "TB/s", [&] {
    must(combine_experts(router, at, Weighted::yes, y.at, kHidden, a.at, nullptr), "combine");
  });
}

}  // namespace

void time_gradient(Tally& tally) {
  Times times(tally);
  const Pass pass;
  time_products(times);
  time_expert_products(times);
  time_head(times);
  time_delta(times, pass);
  time_attention(times, pass);
  time_rows(times);
}

}  // namespace nibble::bench
