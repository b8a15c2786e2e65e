// Many pages moved in one call of the cache store against a call for each page: the time until the
// call returns, which the engine's thread spends, and until all bytes have arrived.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "backend/cuda/cuda_backend.h"
#include "base/file.h"
#include "model/weights/synthetic_weights.h"

namespace nibble {
namespace {

using Clock = std::chrono::steady_clock;

double us_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

struct MoveTimes {
  double queued_us = 0.0;
  double done_us = 0.0;
};

/// Medians over `repeats` moves of the same pairs.
MoveTimes time_moves(Backend& backend, CacheMove move, const std::vector<IdPair>& pairs,
                     bool together, int repeats) {
  std::vector<double> queued;
  std::vector<double> done;
  for (int i = 0; i < repeats; ++i) {
    backend.host_page(0);  // waits
    const auto begin = Clock::now();
    if (together) backend.move_pages(move, pairs);
    for (const IdPair& pair : pairs)
      if (!together) backend.move_pages(move, {&pair, 1});
    queued.push_back(us_since(begin));
    backend.host_page(0);  // waits
    done.push_back(us_since(begin));
  }
  return {.queued_us = median(queued), .done_us = median(done)};
}

int run(int argc, char** argv) {
  const int repeats = argc > 2 ? std::atoi(argv[2]) : 50;
  const std::string text = read_text_file(argv[1], uint64_t{1} << 20).value();
  const ModelConfig config = ModelConfig::parse(parse_json(text, argv[1]).value()).value();
  constexpr int32_t kPages = 256;
  auto backend = make_random_cuda_backend(config, formats_of(WeightLayout::mixed), {}).value();
  backend->reserve({.pages = kPages, .state_slots = 2, .rows_max = 64, .host_pages = kPages})
      .value();
  std::printf("%s; pages of %.2f MB\n", backend->description().c_str(),
              1e-6 * static_cast<double>(backend->page_bytes()));
  std::vector<int32_t> scattered(kPages);
  std::iota(scattered.begin(), scattered.end(), 0);
  std::ranges::shuffle(scattered, std::mt19937(1));
  for (const auto& [move, name] :
       {std::pair(CacheMove::store, "device to host"), std::pair(CacheMove::load, "host to device"),
        std::pair(CacheMove::copy, "device to device")})
    for (const size_t count : {size_t{8}, size_t{32}, size_t{128}}) {
      std::vector<IdPair> pairs;
      for (size_t i = 0; i < count; ++i)
        pairs.push_back({.from = scattered[i], .to = scattered[kPages - 1 - i]});
      const MoveTimes one = time_moves(*backend, move, pairs, false, repeats);
      const MoveTimes all = time_moves(*backend, move, pairs, true, repeats);
      std::printf(
          "%-16s %3zu pages: a call each %7.0f us queued, %7.0f us done; one call %7.0f, %7.0f\n",
          name, count, one.queued_us, one.done_us, all.queued_us, all.done_us);
    }
  return 0;
}

}  // namespace
}  // namespace nibble

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "page_moves_bench CONFIG.json [repeats]\n");
    return 2;
  }
  return nibble::run(argc, argv);
}
