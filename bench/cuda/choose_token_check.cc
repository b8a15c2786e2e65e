// Tokens chosen on the card against Sampler::choose() on the host, bit for bit: vocabularies of
// every size, ties, impossible and broken logits, every kind of parameter, alone and together; and
// the same bits of a row in other company. Usage: choose_token_check [time|small]; small: without
// large vocabularies, for compute-sanitizer
#include <algorithm>
#include <cstdio>
#include <functional>
#include <limits>
#include <random>
#include <string_view>

#include "backend/cuda/checks/opened_device.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/ops/head/choose_token.h"
#include "backend/cuda/runtime/device_memory.h"
#include "backend/cuda/selection.h"
#include "engine/sample/sampler.h"
#include "engine/sample/token_bits.h"

namespace nibble::cuda {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int kRows = 36;

int passed = 0;
int failed = 0;
void check(bool right, const char* what, int vocab, int row) {
  ++(right ? passed : failed);
  if (!right && failed < 40) std::printf("FAIL %s: vocabulary %d, row %d\n", what, vocab, row);
}

template <typename T>
DeviceBuffer to_device(const std::vector<T>& values) {
  const auto bytes = static_cast<int64_t>(std::max<size_t>(values.size(), 1) * sizeof(T));
  DeviceBuffer buffer = DeviceBuffer::allocate(checks::opened_device(), bytes, "a test").value();
  CUDA_CHECK(cudaMemcpy(buffer.as<void>(), values.data(), values.size() * sizeof(T),
                        cudaMemcpyHostToDevice));
  return buffer;
}

/// Logits of every kind.
void make_logits(std::span<float> values, int kind, std::mt19937& random) {
  std::normal_distribution<float> normal(0.0F, kind % 3 == 0 ? 8.0F : 2.0F);
  for (float& x : values) x = normal(random);
  const auto any = [&]() -> float& { return values[random() % values.size()]; };
  switch (kind % 14) {
    case 1:
      for (float& x : values) x = std::round(x);  // ties, -0 and 0
      break;
    case 2:
      std::ranges::fill(values, 1.5F);
      break;
    case 3:
      std::ranges::sort(values);
      break;
    case 4:
      for (float& x : values) x = random() % 50 == 0 ? x : -kInfinity;
      break;
    case 5:
      std::ranges::fill(values, -kInfinity);
      break;
    case 6:
      any() = std::numeric_limits<float>::quiet_NaN();
      break;
    case 7:
      any() = kInfinity;
      break;
    case 8:
      any() = 40.0F;
      break;
    case 9:
      for (float& x : values) x *= 1e30F;
      break;
    case 10:
      for (float& x : values) x *= 1e-30F;
      break;
    case 11:
      for (float& x : values) x = random() % 3 == 0 ? 2.0F : -1.0F;
      break;
    default:
      break;
  }
}

SamplingParams make_params(int vocab, std::mt19937& random) {
  const auto chance = [&](unsigned of) { return random() % of == 0; };
  const auto one_of = [&](std::initializer_list<double> values) {
    return values.begin()[random() % values.size()];
  };
  SamplingParams params;
  params.seed = random();
  params.temperature = chance(6) ? 0.0 : one_of({0.05, 0.6, 1.0, 1.0, 1.7, 40.0, 1e6});
  if (chance(2))
    params.top_k = static_cast<int32_t>(one_of({1, 2, 20, 20, 300, 1024, 1025, 5000, vocab * 1.0}));
  if (chance(2)) params.top_p = one_of({0.0, 0.1, 0.5, 0.8, 0.95, 0.95, 0.999, 1.0 - 1e-9});
  if (chance(3)) params.min_p = one_of({1e-6, 0.001, 0.05, 0.5, 1.0});
  if (chance(3)) params.repetition_penalty = one_of({0.5, 1.05, 1.3});
  if (chance(3)) params.presence_penalty = one_of({-1.0, 0.5, 1.5});
  if (chance(3)) params.frequency_penalty = one_of({-0.3, 0.25, 2.0});
  if (chance(3))
    for (int i = 0; i < 40; ++i)
      params.logit_bias.push_back({static_cast<int32_t>(random() % static_cast<unsigned>(vocab)),
                                   static_cast<float>(one_of({-100.0, -1.5, 0.25, 3.0, 100.0}))});
  if (chance(2)) params.top_logprobs = static_cast<int32_t>(one_of({0, 1, 5, 20, 32}));
  return params;
}

/// Rows of a vocabulary, what they are chosen by, and the host's choices.
struct Rows {
  int vocab;
  std::vector<float> logits;  // [kRows][vocab]
  std::vector<uint32_t> sampleable;
  std::vector<SamplingParams> params;
  std::vector<std::vector<int32_t>> prompts, generated;
  std::vector<std::vector<uint32_t>> masks;
  std::vector<TokenChoice> choices;
  std::vector<ChosenToken> expected;

  Rows(int count, std::mt19937& random) : vocab(count) {
    const auto size = static_cast<size_t>(vocab);
    logits.resize(kRows * size);
    sampleable = Sampler::all_sampleable(vocab);
    if (random() % 3 != 0)
      for (int32_t token = 0; token < vocab; ++token)
        if (random() % 9 == 0) forbid_token(sampleable, token);
    const auto tokens = [&](unsigned most) {
      std::vector<int32_t> ids(random() % most);
      for (int32_t& id : ids) id = static_cast<int32_t>(random() % size);
      return ids;
    };
    Sampler sampler(vocab, sampleable);
    for (int row = 0; row < kRows; ++row) {
      make_logits(std::span(logits).subspan(static_cast<size_t>(row) * size, size), row, random);
      params.push_back(make_params(vocab, random));
      prompts.push_back(tokens(300));
      generated.push_back(tokens(300));
      masks.emplace_back();
      if (random() % 3 == 0) {
        masks.back() = Sampler::all_sampleable(vocab);
        const auto every = random() % 4 == 0 ? size_t{1} : 2 + random() % 5;
        for (int32_t token = 0; token < vocab; ++token)
          if (random() % every == 0) forbid_token(masks.back(), token);
      }
    }
    for (size_t row = 0; row < kRows; ++row) {
      choices.push_back(Sampler::choice_of(
          params[row], {.prompt = prompts[row], .generated = generated[row]}, row, masks[row]));
      expected.push_back(sampler.choose(std::span(logits).subspan(row * size, size), choices[row]));
    }
  }
};

/// Rows and what the kernel wants beside them on the card.
class Card {
 public:
  explicit Card(const Rows& rows) : vocab_(rows.vocab), logits_(to_device(rows.logits)) {
    const auto words = static_cast<size_t>(choice_mask_words(vocab_));
    stride_ = (vocab_ + 7) / 8 * 8;
    std::vector<uint32_t> bits(words);
    const auto put = [&](std::span<const uint32_t> from, uint32_t* to) {
      std::ranges::copy(from, to);
    };
    put(rows.sampleable, bits.data());
    for (int32_t token = vocab_; token % 32 != 0; ++token) forbid_token(bits, token);
    std::vector<uint32_t> masks(kRows * words, ~0U);
    std::vector<LogitBias> biases;
    std::vector<CountedToken> counted;
    for (size_t row = 0; row < kRows; ++row) {
      const TokenChoice& choice = rows.choices[row];
      ChoiceRow in{.rule = choice.rule, .logits_row = static_cast<int32_t>(row)};
      if (!choice.mask.empty()) {
        put(choice.mask, &masks[row * words]);
        in.mask_row = static_cast<int32_t>(row);
      }
      if (choice.rule.penalizes()) in.counts_row = static_cast<int32_t>(row);
      in.bias_begin = static_cast<int32_t>(biases.size());
      in.bias_count = static_cast<int32_t>(choice.bias.size());
      biases.insert(biases.end(), choice.bias.begin(), choice.bias.end());
      const auto count = [&](std::span<const int32_t> tokens, uint32_t kind) {
        for (const int32_t token : tokens)
          counted.push_back(
              {static_cast<uint32_t>(static_cast<int64_t>(row) * stride_ + token) | kind});
      };
      count(choice.history.prompt, CountedToken::kOfPrompt);
      count(choice.history.generated, 0);
      rows_.push_back(in);
    }
    sampleable_ = to_device(bits);
    masks_ = to_device(masks);
    biases_ = to_device(biases);
    counts_ = to_device(std::vector<uint16_t>(static_cast<size_t>(kRows * stride_)));
    state_ = to_device(std::vector<std::byte>(static_cast<size_t>(choice_state_bytes(kRows))));
    results_ = PinnedBuffer::allocate(kRows * int64_t{sizeof(ChosenRow)}, "a test").value();
    const DeviceBuffer entries = to_device(counted);
    count_tokens(entries.as<CountedToken>(), std::ssize(counted), counts_.as<uint16_t>(), {});
    CUDA_CHECK(cudaDeviceSynchronize());
  }
  /// `together` rows a launch; the last launch is of the last rows.
  std::vector<ChosenRow> run(int together, const Launcher& launcher) {
    const DeviceBuffer rows = to_device(rows_);
    for (int begin = 0; begin < kRows; begin += together) {
      const int count = std::min(together, kRows - begin);
      choose_tokens({.logits = logits_.as<float>(),
                     .sampleable = sampleable_.as<uint32_t>(),
                     .masks = masks_.as<uint32_t>(),
                     .counts = counts_.as<uint16_t>(),
                     .counts_stride = stride_,
                     .biases = biases_.as<LogitBias>(),
                     .rows_in = rows.as<ChoiceRow>() + begin,
                     .rows_out = results_.as<ChosenRow>() + begin,
                     .state = state_.as<void>(),
                     .rows = count,
                     .vocab = vocab_},
                    launcher);
      clear_choice_state(state_.as<void>(), count, launcher);
    }
    CUDA_CHECK(cudaDeviceSynchronize());
    return {results_.as<ChosenRow>(), results_.as<ChosenRow>() + kRows};
  }

 private:
  int vocab_;
  int64_t stride_ = 0;
  DeviceBuffer logits_, sampleable_, masks_, biases_, counts_, state_;
  PinnedBuffer results_;
  std::vector<ChoiceRow> rows_;
};

void check_row(const Rows& rows, size_t row, const ChosenRow& found) {
  const ChosenToken& expected = rows.expected[row];
  const auto check_one = [&](bool right, const char* what) {
    check(right, what, rows.vocab, static_cast<int>(row));
  };
  check_one((found.sound != 0) == expected.sound, "soundness");
  if (!expected.sound) return;
  check_one(found.token == expected.token, "token");
  if (found.token != expected.token && failed < 40) {
    const ChoiceRule& rule = rows.choices[row].rule;
    std::printf(
        "  found %d, expected %d; scale %g, top-k %d, top-p %g, min weight %g, penalties "
        "%d, biases %zu, mask %d, logprobs %d\n",
        found.token, expected.token, rule.scale, rule.top_k,
        static_cast<double>(rule.top_p) * 0x1p-64, static_cast<double>(rule.min_weight) * 0x1p-44,
        rule.penalizes() ? 1 : 0, rows.choices[row].bias.size(),
        rows.choices[row].mask.empty() ? 0 : 1, rule.top_logprobs);
  }
  if (expected.token < 0 || rows.choices[row].rule.top_logprobs < 0) return;
  check_one(found.logit == expected.chosen.logit, "the chosen logit");
  check_one(found.best == expected.best, "the best logit");
  check_one(found.mass == expected.mass, "the mass");
  check_one(found.rank == expected.rank, "the rank");
  bool same = found.top_count == std::ssize(expected.top);
  for (size_t i = 0; same && i < expected.top.size(); ++i)
    same =
        found.top[i].token == expected.top[i].token && found.top[i].logit == expected.top[i].logit;
  check_one(same, "the best tokens");
}

void check_vocabulary(int vocab, std::mt19937& random) {
  const Rows rows(vocab, random);
  Card card(rows);
  Launcher launcher = launcher_of(checks::opened_device(), {});
  launcher.stream = nullptr;  // the one of the copies above
  for (const int together : {kRows, 1, 7}) {
    const std::vector<ChosenRow> found = card.run(together, launcher);
    for (size_t row = 0; row < kRows; ++row) check_row(rows, row, found[row]);
  }
}

struct TimedRows {
  const char* name;
  SamplingParams params;
  bool masked = false;
};

/// Microseconds of one launch over `rows` rows, the lowest, median and largest of five batches
/// of 20.
std::vector<float> time_rows(const ChooseArgs& args, const Launcher& launcher) {
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  CUDA_CHECK(cudaEventCreate(&begin));
  CUDA_CHECK(cudaEventCreate(&end));
  cudaStream_t stream = launcher.stream;
  std::vector<float> times;
  for (int batch = 0; batch < 6; ++batch) {
    float sum = 0.0F;
    for (int i = 0; i < 20; ++i) {
      CUDA_CHECK(cudaEventRecord(begin, stream));
      choose_tokens(args, launcher);
      CUDA_CHECK(cudaEventRecord(end, stream));
      clear_choice_state(args.state, args.rows, launcher);
      CUDA_CHECK(cudaEventSynchronize(end));
      float ms = 0.0F;
      CUDA_CHECK(cudaEventElapsedTime(&ms, begin, end));
      sum += ms;
    }
    if (batch > 0) times.push_back(sum * 1000.0F / 20);
  }
  std::ranges::sort(times);
  CUDA_CHECK(cudaEventDestroy(begin));
  CUDA_CHECK(cudaEventDestroy(end));
  return times;
}

/// Rows of 248,320 random logits by every kind of parameter.
void time_kinds() {
  constexpr int kVocab = 248320;
  constexpr int kTimed = 64;
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.0F, 2.5F);
  std::vector<float> values(size_t{kTimed} * kVocab);
  for (float& x : values) x = normal(random);
  const DeviceBuffer logits = to_device(values);
  const auto words = static_cast<size_t>(choice_mask_words(kVocab));
  std::vector<uint32_t> bits(words, ~0U);
  std::fill(bits.begin() + kVocab / 32, bits.end(), 0U);
  const DeviceBuffer sampleable = to_device(bits);
  const DeviceBuffer masks = to_device(std::vector<uint32_t>(kTimed * words, 0x11111111U));
  const DeviceBuffer counts = to_device(std::vector<uint16_t>(size_t{kTimed} * kVocab, 1));
  const DeviceBuffer state =
      to_device(std::vector<std::byte>(static_cast<size_t>(choice_state_bytes(kTimed))));
  const PinnedBuffer results =
      PinnedBuffer::allocate(kTimed * int64_t{sizeof(ChosenRow)}, "a test").value();
  std::vector<LogitBias> list;
  for (int i = 0; i < 300; ++i) list.push_back({i * 800, 0.5F});
  const DeviceBuffer biases = to_device(list);
  const Launcher launcher = launcher_of(checks::opened_device(), {});
  const std::vector<TimedRows> kinds = {
      {"greedy", {.temperature = 0.0}},
      {"temperature 1", {}},
      {"top-k 20, top-p 0.95", {.top_k = 20, .top_p = 0.95}},
      {"top-p 0.95", {.top_p = 0.95}},
      {"min-p 0.05", {.min_p = 0.05}},
      {"top-k 5000, top-p 0.95", {.top_k = 5000, .top_p = 0.95}},
      {"penalties and 300 biases", {.presence_penalty = 1.5, .frequency_penalty = 0.1}},
      {"mask", {}, true},
      {"20 log-probabilities", {.top_k = 20, .top_p = 0.95, .top_logprobs = 20}},
      {"temperature 1, 20 log-probabilities", {.top_logprobs = 20}}};
  for (const TimedRows& kind : kinds) {
    std::vector<ChoiceRow> rows;
    for (int i = 0; i < kTimed; ++i) {
      const TokenChoice choice = Sampler::choice_of(kind.params, {}, static_cast<uint64_t>(i));
      const bool penalized = choice.rule.penalizes();
      rows.push_back({.rule = choice.rule,
                      .logits_row = i,
                      .mask_row = kind.masked ? i : -1,
                      .counts_row = penalized ? i : -1,
                      .bias_count = penalized ? static_cast<int32_t>(list.size()) : 0});
    }
    const DeviceBuffer rows_in = to_device(rows);
    for (const int count : {1, 8, 64}) {
      const std::vector<float> times = time_rows({.logits = logits.as<float>(),
                                                  .sampleable = sampleable.as<uint32_t>(),
                                                  .masks = masks.as<uint32_t>(),
                                                  .counts = counts.as<uint16_t>(),
                                                  .counts_stride = kVocab,
                                                  .biases = biases.as<LogitBias>(),
                                                  .rows_in = rows_in.as<ChoiceRow>(),
                                                  .rows_out = results.as<ChosenRow>(),
                                                  .state = state.as<void>(),
                                                  .rows = count,
                                                  .vocab = kVocab},
                                                 launcher);
      std::printf("%-36s %2d rows: %6.1f us (%.1f to %.1f)\n", kind.name, count, times[2],
                  times.front(), times.back());
    }
  }
}

int run(std::string_view part) {
  constexpr int kSmallVocab = 10000;
  const uint32_t seed = std::random_device{}();
  std::mt19937 random(seed);
  for (const int vocab :
       {1,    2,    3,    31,   32,   33,    64,    130,   1000,   2047,   2048,
        2049, 5000, 8191, 8192, 8193, 16384, 24577, 70001, 151936, 248320, 262145})
    if (part != "small" || vocab < kSmallVocab) check_vocabulary(vocab, random);
  std::printf("chosen tokens: %d passed, %d failed, seed %u\n", passed, failed, seed);
  if (part == "time") time_kinds();
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
