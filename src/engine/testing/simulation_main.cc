// nibble_engine_simulation [--seeds N] [--first N] [--steps N] [--threads N] [--minimum]: runs that
// many lives of simulation.h; prints the counts; exit code 1 with the seed of the first failure.
// --minimum also fails if something never happened often enough to mean anything.
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/testing/simulation.h"

namespace nibble {
namespace {

struct Options {
  int64_t seeds = 10000;
  int64_t first = 1;
  int64_t steps = 300;
  int threads = 2;
  bool minimum = false;
};

/// The seed each thread is at, for the message of a broken CHECK.
std::vector<std::atomic<int64_t>>& current_seeds() {
  static std::vector<std::atomic<int64_t>> seeds(256);
  return seeds;
}

int run(const Options& options) {
  std::atomic<int64_t> next{options.first};
  std::atomic<bool> failed{false};
  std::mutex mutex;
  SimulationCounts total;
  const auto work = [&](size_t thread) {
    SimulationCounts counts;
    while (!failed) {
      const int64_t seed = next.fetch_add(1);
      if (seed >= options.first + options.seeds) break;
      current_seeds()[thread] = seed;
      const std::string failure = simulate(static_cast<uint64_t>(seed), options.steps, counts);
      current_seeds()[thread] = 0;
      if (failure.empty()) continue;
      failed = true;
      const std::lock_guard lock(mutex);
      std::fprintf(stderr, "seed %lld: %s\n", static_cast<long long>(seed), failure.c_str());
    }
    const std::lock_guard lock(mutex);
    total.add(counts);
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < options.threads; ++i) threads.emplace_back(work, static_cast<size_t>(i));
  for (std::thread& thread : threads) thread.join();
  std::fputs(total.text().c_str(), stdout);
  if (failed) return 1;
  if (!options.minimum) return 0;
  const std::string rare = total.too_rare();
  if (!rare.empty()) std::fprintf(stderr, "too rare to mean anything: %s\n", rare.c_str());
  return rare.empty() ? 0 : 1;
}

void on_abort(int) {
  for (const auto& seed : current_seeds())
    if (seed > 0) std::fprintf(stderr, "at seed %lld\n", static_cast<long long>(seed.load()));
}

bool parse(int count, char** words, Options& options) {
  for (int i = 1; i < count; ++i) {
    if (std::strcmp(words[i], "--minimum") == 0) {
      options.minimum = true;
      continue;
    }
    if (i + 1 == count) return false;
    const int64_t value = std::atoll(words[i + 1]);
    if (std::strcmp(words[i], "--seeds") == 0 && value > 0)
      options.seeds = value;
    else if (std::strcmp(words[i], "--first") == 0 && value > 0)
      options.first = value;
    else if (std::strcmp(words[i], "--steps") == 0 && value > 0)
      options.steps = value;
    else if (std::strcmp(words[i], "--threads") == 0 && value > 0 && value <= 256)
      options.threads = static_cast<int>(value);
    else
      return false;
    ++i;
  }
  return true;
}

}  // namespace
}  // namespace nibble

int main(int count, char** words) {
  nibble::Options options;
  if (!nibble::parse(count, words, options)) {
    std::fprintf(stderr,
                 "usage: nibble_engine_simulation [--seeds N] [--first N] [--steps N] "
                 "[--threads 1..256] [--minimum]\n");
    return 2;
  }
  std::signal(SIGABRT, nibble::on_abort);
  return nibble::run(options);
}
