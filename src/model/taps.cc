// The sums, in an order that threads cannot change: each element is added up by one thread.
#include "model/taps.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace nibble {
namespace {

struct SoundRow {
  const float* x;
  double weight;
};

/// The rows without NaN and infinity; updates the largest magnitude.
std::vector<SoundRow> sound_rows(const InputRows& rows, int64_t cols, const TokenWeights* weights,
                                 float& amax) {
  std::vector<SoundRow> sound;
  for (int64_t t = 0; t < rows.count; ++t) {
    const float* row = rows.x + t * rows.stride;
    float largest = 0;
    bool finite = true;
    for (int64_t i = 0; i < cols; ++i) {
      finite = finite && std::isfinite(row[i]);
      largest = std::max(largest, std::fabs(row[i]));
    }
    if (!finite) continue;
    amax = std::max(amax, largest);
    sound.push_back({.x = row, .weight = weights == nullptr ? 1.0 : weights->of(rows.token(t))});
  }
  return sound;
}

/// sum[j] += weight x_i x_j for j in [begin, end), one token after the other. Compiled once for
/// each instruction set: every element has the same operations in the same order in all of them.
__attribute__((always_inline)) inline void add_products_loop(const std::vector<SoundRow>& rows,
                                                             int64_t i, int64_t begin, int64_t end,
                                                             double* sum) {
  const auto factor = [&](size_t t) { return rows[t].weight * static_cast<double>(rows[t].x[i]); };
  size_t t = 0;
  for (; t + 4 <= rows.size(); t += 4) {
    const float *a = rows[t].x, *b = rows[t + 1].x, *c = rows[t + 2].x, *d = rows[t + 3].x;
    const double ai = factor(t), bi = factor(t + 1), ci = factor(t + 2), di = factor(t + 3);
    for (int64_t j = begin; j < end; ++j) {
      double s = sum[j - begin];
      s += ai * static_cast<double>(a[j]);
      s += bi * static_cast<double>(b[j]);
      s += ci * static_cast<double>(c[j]);
      s += di * static_cast<double>(d[j]);
      sum[j - begin] = s;
    }
  }
  for (; t < rows.size(); ++t) {
    const double xi = factor(t);
    for (int64_t j = begin; j < end; ++j) sum[j - begin] += xi * static_cast<double>(rows[t].x[j]);
  }
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void add_products_avx2(const std::vector<SoundRow>& rows, int64_t i,
                                                       int64_t begin, int64_t end, double* sum) {
  add_products_loop(rows, i, begin, end, sum);
}
__attribute__((target("avx512f,avx512dq,prefer-vector-width=512"))) void add_products_avx512(
    const std::vector<SoundRow>& rows, int64_t i, int64_t begin, int64_t end, double* sum) {
  add_products_loop(rows, i, begin, end, sum);
}
#endif

void add_products(const std::vector<SoundRow>& rows, int64_t i, int64_t begin, int64_t end,
                  double* sum) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq"))
    return add_products_avx512(rows, i, begin, end, sum);
  if (__builtin_cpu_supports("avx2")) return add_products_avx2(rows, i, begin, end, sum);
#endif
  add_products_loop(rows, i, begin, end, sum);
}

}  // namespace

int64_t moment_count(SecondMoment kind, int64_t cols) {
  switch (kind) {
    case SecondMoment::none:
      return 0;
    case SecondMoment::diagonal:
      return cols;
    case SecondMoment::blocks:
      CHECK(cols % kMomentBlock == 0, "columns ", cols);
      return cols * kMomentBlock;
    case SecondMoment::full:
      return cols * cols;
  }
  CHECK(false, "second moment ", static_cast<int>(kind));
}

InputStatistics::InputStatistics(int64_t columns, SecondMoment wanted, MomentPlace where)
    : cols(columns),
      kind(wanted),
      moment(static_cast<size_t>(where == MomentPlace::device ? columns
                                                              : moment_count(wanted, columns))),
      place(where) {
  CHECK(where == MomentPlace::host || wanted == SecondMoment::full, "kept: all products, or none");
}

double InputStatistics::square(int64_t i) const { return product(i, i); }

double InputStatistics::product(int64_t i, int64_t j) const {
  CHECK(kind != SecondMoment::none, "no sums were asked for");
  if (kind == SecondMoment::diagonal || place == MomentPlace::device) {
    CHECK(i == j, "only squares were asked for: ", i, ", ", j);
    return moment[static_cast<size_t>(i)];
  }
  if (kind == SecondMoment::full)
    return moment[static_cast<size_t>(std::min(i, j) * cols + std::max(i, j))];
  CHECK(i / kMomentBlock == j / kMomentBlock, "not in one block: ", i, ", ", j);
  return moment[static_cast<size_t>(i * kMomentBlock + j % kMomentBlock)];
}

float TokenWeights::of(int64_t token) const {
  if (tokens.empty()) {
    CHECK(token >= 0 && token < std::ssize(weights), "token ", token, " of ", weights.size());
    return weights[static_cast<size_t>(token)];
  }
  const auto at = std::ranges::lower_bound(tokens, token);
  return at != tokens.end() && *at == token ? weights[static_cast<size_t>(at - tokens.begin())]
                                            : other;
}

void InputStatistics::add(const InputRows& rows, ThreadPool& threads) {
  CHECK(place == MomentPlace::host, "a device adds to sums that it keeps");
  const std::vector<SoundRow> sound = sound_rows(rows, cols, weights, amax);
  tokens += static_cast<int64_t>(sound.size());
  bad_tokens += rows.count - static_cast<int64_t>(sound.size());
  if (kind == SecondMoment::none || sound.empty()) return;
  threads.parallel_for(static_cast<size_t>(cols), 16, [&](size_t first, size_t last) {
    for (auto i = static_cast<int64_t>(first); i < static_cast<int64_t>(last); ++i) {
      const int64_t block = i / kMomentBlock * kMomentBlock;
      if (kind == SecondMoment::diagonal)
        add_products(sound, i, i, i + 1, &moment[static_cast<size_t>(i)]);
      else if (kind == SecondMoment::blocks)
        add_products(sound, i, block, block + kMomentBlock,
                     &moment[static_cast<size_t>(i * kMomentBlock)]);
      else
        add_products(sound, i, i, cols, &moment[static_cast<size_t>(i * cols + i)]);
    }
  });
}

void InputStatistics::add(const float* x, int64_t rows, int64_t stride, ThreadPool& threads) {
  CHECK(weights == nullptr, "rows without their tokens");
  add({.x = x, .count = rows, .stride = stride}, threads);
}

void Taps::want(std::string module, int64_t cols, SecondMoment kind, const TokenWeights* weights,
                MomentPlace place) {
  const auto [at, added] = taps_.try_emplace(module, InputStatistics(cols, kind, place));
  CHECK(added, "tapped twice: ", module);
  at->second.weights = weights;
}

InputStatistics* Taps::find(std::string_view module) {
  const auto at = taps_.find(module);
  return at == taps_.end() ? nullptr : &at->second;
}

const InputStatistics* Taps::find(std::string_view module) const {
  const auto at = taps_.find(module);
  return at == taps_.end() ? nullptr : &at->second;
}

int64_t Taps::bytes() const {
  int64_t bytes = 0;
  for (const auto& [module, tap] : taps_)
    bytes += static_cast<int64_t>(tap.moment.size() * sizeof(double));
  return bytes;
}

}  // namespace nibble
