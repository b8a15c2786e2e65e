// Short lists made on the card against their definition in double on the host: odd vocabularies,
// ties, impossible and broken logits, tokens that may not be sampled; and the same bits of a row
// alone, among others, with and without overlap. Usage: short_list_check [time|small]; small:
// without large vocabularies, for compute-sanitizer
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <numbers>
#include <random>
#include <string_view>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/ops/head/short_list.h"
#include "backend/cuda/runtime/device_memory.h"
#include "backend/cuda/selection.h"
#include "model/short_list.h"

namespace nibble::cuda {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int kRows = 24;

int passed = 0;
int failed = 0;
void check(bool right, const char* what, int vocab, int row) {
  ++(right ? passed : failed);
  if (!right && failed < 40) std::printf("FAIL %s: vocabulary %d, row %d\n", what, vocab, row);
}

template <typename T>
DeviceBuffer to_device(const std::vector<T>& values) {
  DeviceBuffer buffer =
      DeviceBuffer::allocate(static_cast<int64_t>(values.size() * sizeof(T)), "a test").value();
  CUDA_CHECK(cudaMemcpy(buffer.as<void>(), values.data(), values.size() * sizeof(T),
                        cudaMemcpyHostToDevice));
  return buffer;
}

/// Rows of every kind, from a fresh seed.
struct Rows {
  int vocab;
  std::vector<float> logits;         // [kRows][vocab]
  std::vector<uint32_t> sampleable;  // padded as the kernels want it
  std::vector<RowDraw> draws;

  Rows(int count, std::mt19937& random) : vocab(count) {
    const auto size = static_cast<size_t>(vocab);
    const auto pick = [&](size_t most) { return random() % most; };
    logits.resize(kRows * size);
    for (int row = 0; row < kRows; ++row) {
      const auto values = std::span(logits).subspan(static_cast<size_t>(row) * size, size);
      std::normal_distribution<float> normal(0.0F, row % 3 == 0 ? 8.0F : 2.0F);
      for (float& x : values) x = normal(random);
      switch (row % 12) {
        case 1:
          for (float& x : values) x = std::round(x);
          break;  // ties, -0 and 0
        case 2:
          std::ranges::fill(values, 1.5F);
          break;
        case 3:
          std::ranges::sort(values);
          break;
        case 4:
          std::ranges::sort(values, std::greater<>());
          break;
        case 5:
          for (float& x : values) x = random() % 50 == 0 ? x : -kInfinity;
          break;
        case 6:
          std::ranges::fill(values, -kInfinity);
          break;
        case 7:
          values[pick(size)] = std::numeric_limits<float>::quiet_NaN();
          break;
        case 8:
          values[pick(size)] = kInfinity;
          break;
        case 9:
          values[pick(size)] = 40.0F;
          break;
        case 10:
          for (float& x : values) x *= 1e30F;
          break;
        default:
          break;
      }
      draws.push_back({.temperature = row % 4 == 0 ? 0.6F : 1.0F,
                       .u = static_cast<float>(random() >> 8) * 0x1p-24F});
    }
    const size_t groups = static_cast<size_t>(list_groups(vocab));
    sampleable.resize(groups * kListGroup / 32);
    const auto every = pick(3) == 0 ? size_t{1} : 2 + pick(30);
    for (size_t token = 0; token < size; ++token)
      if (every == 1 || random() % every != 0) sampleable[token / 32] |= 1U << (token % 32);
  }
  std::span<const float> row(int i) const {
    const auto size = static_cast<size_t>(vocab);
    return std::span(logits).subspan(static_cast<size_t>(i) * size, size);
  }
};

/// Rows and what the kernels want beside them on the card.
class Card {
 public:
  explicit Card(const Rows& rows)
      : vocab_(rows.vocab),
        logits_(to_device(rows.logits)),
        sampleable_(to_device(rows.sampleable)),
        groups_(DeviceBuffer::allocate(kRows * list_groups(vocab_) * int64_t{sizeof(ListGroup)},
                                       "a test")
                    .value()),
        lists_(PinnedBuffer::allocate(kRows * int64_t{sizeof(ShortListRow)}, "a test").value()) {
    std::vector<DrawView> views;
    for (const RowDraw& draw : rows.draws)
      views.push_back(
          {.scale = static_cast<float>(std::numbers::log2e / draw.temperature), .u = draw.u});
    draws_ = to_device(views);
  }
  void launch(int begin, int count, const Launcher& launcher) const {
    short_lists({.logits = logits_.as<float>() + int64_t{begin} * vocab_,
                 .sampleable = sampleable_.as<uint32_t>(),
                 .draws = draws_.as<DrawView>() + begin,
                 .rows = count,
                 .vocab = vocab_,
                 .groups = groups_.as<ListGroup>(),
                 .lists = lists_.as<ShortListRow>() + begin},
                launcher);
  }
  std::vector<ShortListRow> run(int together, const Launcher& launcher) {
    std::memset(lists_.as<void>(), 0xFF, static_cast<size_t>(lists_.bytes()));
    CUDA_CHECK(cudaMemset(groups_.as<void>(), 0xFF, static_cast<size_t>(groups_.bytes())));
    for (int begin = 0; begin < kRows; begin += together)
      launch(begin, std::min(together, kRows - begin), launcher);
    CUDA_CHECK(cudaDeviceSynchronize());
    return {lists_.as<ShortListRow>(), lists_.as<ShortListRow>() + kRows};
  }

 private:
  int vocab_;
  DeviceBuffer logits_, sampleable_, groups_, draws_;
  PinnedBuffer lists_;
};

double weight(const Rows& rows, int row, int32_t token, float best) {
  return std::exp((double{rows.row(row)[static_cast<size_t>(token)]} - double{best}) /
                  double{rows.draws[static_cast<size_t>(row)].temperature});
}

void check_draw(const Rows& rows, int row, const ShortListRow& found, const ShortList& expected) {
  const float best = expected.logits[0];
  const double error = mass_error(double{expected.total});
  double before = 0.0;
  double after = 0.0;
  for (int32_t token = 0; token < found.drawn_begin + found.drawn_count; ++token) {
    if ((rows.sampleable[static_cast<size_t>(token) / 32] >> (token % 32) & 1U) == 0) continue;
    const double w = weight(rows, row, token, best);
    after += w;
    if (token < found.drawn_begin) before += w;
  }
  const double target = double{rows.draws[static_cast<size_t>(row)].u} * double{expected.total};
  check(found.drawn_begin % kListGroup == 0 && found.drawn_begin < rows.vocab, "draw begins",
        rows.vocab, row);
  check(std::fabs(found.before - before) <= error, "mass before the draw", rows.vocab, row);
  check(before <= target + 3 * error && after >= target - 3 * error, "draw", rows.vocab, row);
  const auto drawn = rows.row(row).subspan(static_cast<size_t>(found.drawn_begin),
                                           static_cast<size_t>(found.drawn_count));
  check(std::ranges::equal(drawn, std::span(found.drawn).first(drawn.size())), "drawn logits",
        rows.vocab, row);
}

void check_row(const Rows& rows, int row, const ShortListRow& found) {
  const auto owned =
      OwnedShortList::of(rows.row(row), rows.sampleable, rows.draws[static_cast<size_t>(row)],
                         kListTokens, kListGroup);
  const ShortList expected = owned.view();
  check((found.sound != 0) == expected.sound || (expected.sound && expected.tokens.empty()),
        "soundness", rows.vocab, row);
  if (!expected.sound) return;
  const auto count = static_cast<size_t>(std::clamp(found.count, 0, kListTokens));
  check(std::ranges::equal(expected.tokens, std::span(found.tokens).first(count)), "tokens",
        rows.vocab, row);
  check(std::ranges::equal(expected.logits, std::span(found.logits).first(count)), "logits",
        rows.vocab, row);
  if (expected.tokens.empty()) return;
  check((found.all != 0) == expected.all, "whether all are listed", rows.vocab, row);
  if (!std::isfinite(expected.logits[0])) return;
  const double rest = double{expected.rest};
  const double total = double{expected.total};
  check(std::fabs(found.rest - rest) <= mass_error(rest), "mass of the rest", rows.vocab, row);
  check(std::fabs(found.total - total) <= mass_error(total), "mass", rows.vocab, row);
  check_draw(rows, row, found, expected);
}

bool same_bits(const ShortListRow& a, const ShortListRow& b) {
  const auto tokens = static_cast<size_t>(std::clamp(a.count, 0, kListTokens));
  return std::memcmp(&a, &b, offsetof(ShortListRow, tokens)) == 0 &&
         std::memcmp(a.tokens, b.tokens, tokens * sizeof(int32_t)) == 0 &&
         std::memcmp(a.logits, b.logits, tokens * sizeof(float)) == 0 &&
         std::memcmp(a.drawn, b.drawn, sizeof a.drawn) == 0;
}

void check_vocabulary(int vocab, std::mt19937& random) {
  const Rows rows(vocab, random);
  Card card(rows);
  const Launcher plain{.card = architecture_of(open_device().value(), {})};
  const std::vector<ShortListRow> found = card.run(kRows, plain);
  for (int row = 0; row < kRows; ++row) check_row(rows, row, found[static_cast<size_t>(row)]);
  for (const int together : {1, 7}) {
    Launcher launcher = plain;
    if (together == 7) launcher = launcher.in_order();
    const std::vector<ShortListRow> again = card.run(together, launcher);
    for (size_t row = 0; row < kRows; ++row)
      check(same_bits(found[row], again[row]), "the same bits in other company", vocab,
            static_cast<int>(row));
  }
}

/// 64 rows of 248,320 random logits; five batches of 20 runs.
void time_rows() {
  constexpr int kVocab = 248320;
  constexpr int kTimed = 64;
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.0F, 2.5F);
  std::vector<float> values(size_t{kTimed} * kVocab);
  for (float& x : values) x = normal(random);
  const DeviceBuffer logits = to_device(values);
  const DeviceBuffer bits = to_device(std::vector<uint32_t>(kVocab / 32, ~0U));
  const DeviceBuffer draws =
      to_device(std::vector<DrawView>(kTimed, {.scale = 1.4427F, .u = 0.5F}));
  const DeviceBuffer groups =
      DeviceBuffer::allocate(kTimed * list_groups(kVocab) * int64_t{sizeof(ListGroup)}, "a test")
          .value();
  const PinnedBuffer lists =
      PinnedBuffer::allocate(kTimed * int64_t{sizeof(ShortListRow)}, "a test").value();
  const Architecture card = architecture_of(open_device().value(), {});
  cudaStream_t stream = nullptr;
  CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  CUDA_CHECK(cudaEventCreate(&begin));
  CUDA_CHECK(cudaEventCreate(&end));
  for (const int rows : {1, 8, 32, 64}) {
    std::vector<float> times;
    for (int batch = 0; batch < 6; ++batch) {
      CUDA_CHECK(cudaEventRecord(begin, stream));
      for (int i = 0; i < 20; ++i)
        short_lists({.logits = logits.as<float>(),
                     .sampleable = bits.as<uint32_t>(),
                     .draws = draws.as<DrawView>(),
                     .rows = rows,
                     .vocab = kVocab,
                     .groups = groups.as<ListGroup>(),
                     .lists = lists.as<ShortListRow>()},
                    {.stream = stream, .card = card});
      CUDA_CHECK(cudaEventRecord(end, stream));
      CUDA_CHECK(cudaEventSynchronize(end));
      float ms = 0.0F;
      CUDA_CHECK(cudaEventElapsedTime(&ms, begin, end));
      if (batch > 0) times.push_back(ms * 1000.0F / 20);
    }
    std::ranges::sort(times);
    std::printf("%2d rows: %.1f us (%.1f to %.1f), %.2f TB/s of logits\n", rows, times[2],
                times.front(), times.back(), 4e-6 * rows * kVocab / times[2]);
  }
}

int run(std::string_view part) {
  constexpr int kSmallVocab = 10000;
  const uint32_t seed = std::random_device{}();
  std::mt19937 random(seed);
  for (const int vocab :
       {1,    2,    31,   63,   64,   65,   127,   128,    129,    130,          1000,
        4095, 4096, 4097, 8191, 8192, 8193, 70001, 151936, 248320, kListVocabMax})
    if (part != "small" || vocab < kSmallVocab) check_vocabulary(vocab, random);
  std::printf("short lists: %d passed, %d failed, seed %u\n", passed, failed, seed);
  if (part == "time") time_rows();
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace nibble::cuda

int main(int argc, char** argv) {
  if (const auto device = nibble::describe_cuda_device(); !device.ok()) {
    std::printf("skipped: %s\n", device.error().message.c_str());
    return 0;
  }
  return nibble::cuda::run(argc > 1 ? argv[1] : "");
}
