// A model as `nibble synth` writes it: time and memory of loading, then prompts and decoding, with
// the bytes that a step reads against the bandwidth that this machine reads memory with.
//   slice_bench DIR [threads] [isa] [auto|f32] [all|load|prompt] [auto|mapped|copied] [memory in
//   GB]
// Weights beyond such a memory, which the caller sees to, are streamed.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "base/thread_pool.h"
#include "bench/cpu/machine_bounds.h"
#include "bench/processor_time.h"
#include "model/forward.h"

namespace nibble {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPages = 40;
constexpr int kSequences = 8;
constexpr int kPrompt = 512;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}
/// A field of /proc/self/status in MB: VmRSS, VmHWM.
double status_mb(const std::string& field) {
  std::ifstream status("/proc/self/status");
  std::string key;
  double kilobytes = 0.0;
  while (status >> key)
    if (key == field + ":") status >> kilobytes;
  return kilobytes * 1024e-6;
}

/// `rows` tokens of each sequence after `kv` others; ids change from step to step, so that the
/// experts do.
Batch batch_of(const ModelConfig& config, int sequences, int rows, int kv, int step) {
  Batch batch;
  uint32_t random = static_cast<uint32_t>(step) * 2654435761U + 1U;
  const int pages = sequences > 1 ? kPages / kSequences : kPages;
  for (int32_t s = 0; s < sequences; ++s) {
    for (int i = 0; i < rows; ++i) {
      random = random * 1664525U + 1013904223U;
      const auto vocab = static_cast<uint32_t>(config.vocab_rows);
      batch.tokens.push_back(static_cast<int32_t>((random >> 8) % vocab));
    }
    batch.sequences.push_back(
        {.row_begin = s * rows,
         .row_count = rows,
         .kv_begin = kv,
         .page_begin = s * pages,
         .page_count = pages,
         .state_in = s,
         .state_out = s,
         .arithmetic = rows > 1 ? Arithmetic::prompt : Arithmetic::generation});
    for (int32_t page = 0; page < pages; ++page) batch.pages.push_back(s * pages + page);
    batch.logit_rows.push_back((s + 1) * rows - 1);
  }
  for (int axis = 0; axis < 3; ++axis)
    for (int i = 0; i < sequences * rows; ++i) batch.positions.push_back(kv + i % rows);
  return batch;
}

enum class Extent : uint8_t { loading, prompts, everything };

struct Times {
  double median, fastest, slowest, cpu;  // seconds
};

Times measure(Backend& backend, const ModelConfig& config, int sequences, int rows, int count) {
  std::vector<double> times;
  const double cpu = cpu_seconds();
  for (int step = 0; step < count; ++step) {
    const Batch batch = batch_of(config, sequences, rows, rows > 1 ? 0 : 128, step);
    const auto begin = Clock::now();
    forward(backend, config, batch);
    times.push_back(seconds_since(begin));
  }
  std::ranges::sort(times);
  return {times[times.size() / 2], times.front(), times.back(), (cpu_seconds() - cpu) / count};
}

void print(const char* what, double tokens, const Times& t) {
  std::printf("%-22s %8.1f tokens/s median, %8.1f fastest, %8.1f slowest, %8.2f ms of CPU a step\n",
              what, tokens / t.median, tokens / t.fastest, tokens / t.slowest, t.cpu * 1e3);
}

int run(const std::string& folder, const BackendOptions& options, Extent extent) {
  const double cpu = cpu_seconds();
  const auto begin = Clock::now();
  Checkpoint checkpoint = Checkpoint::open(folder).value();
  if (options.weights != WeightPlace::copied) checkpoint.map_files().value();
  const ModelConfig config = ModelConfig::parse(checkpoint.config()).value();
  const Weights weights = Weights::bind(checkpoint, config).value();
  const double bound_s = seconds_since(begin);
  const auto backend = make_cpu_backend(weights, config, options).value();
  const double load_s = seconds_since(begin);
  double bytes = 0.0;
  for (const TensorEntry& entry : checkpoint.entries()) bytes += static_cast<double>(entry.bytes);
  std::printf("%s\n", backend->description().c_str());
  std::printf("load of %.2f GB: %.2f s (%.2f open and bind), %.2f s of CPU, %.2f GB/s\n",
              bytes * 1e-9, load_s, bound_s, cpu_seconds() - cpu, bytes * 1e-9 / load_s);
  const ReservedBytes reserved = backend->reserved_bytes().value();
  if (backend->host_weights()->streamed) std::printf("streamed; ");
  std::printf("weights of %.0f MB; resident memory: %.0f MB of this process, %.0f MB of files\n",
              static_cast<double>(reserved.weights) * 1e-6, status_mb("RssAnon"),
              status_mb("RssFile"));
  std::fflush(stdout);
  if (extent == Extent::loading) return 0;
  backend->reserve({.pages = kPages, .state_slots = kSequences, .rows_max = kPrompt}).value();
  for (int s = 0; s < kSequences; ++s) backend->zero_state(s);
  if (extent == Extent::everything) {
    print("decode, 1 stream", 1, measure(*backend, config, 1, 1, 41));
    print("decode, 8 streams", kSequences, measure(*backend, config, kSequences, 1, 15));
  }
  print("prompt of 512", kPrompt, measure(*backend, config, 1, kPrompt, 5));
  std::printf("resident memory: %.0f MB of this process, %.0f MB of files\n", status_mb("RssAnon"),
              status_mb("RssFile"));
  return 0;
}

}  // namespace
}  // namespace nibble

int main(int argc, char** argv) {
  using nibble::Activations;
  using nibble::Extent;
  using nibble::WeightPlace;
  if (argc < 2)
    return std::fprintf(stderr,
                        "slice_bench DIR [threads] [isa] [auto|f32] [all|load|prompt] "
                        "[auto|mapped|copied] [memory in GB]\n"),
           1;
  const auto is = [&](int place, const char* word) {
    return argc > place && std::string(argv[place]) == word;
  };
  return nibble::run(
      argv[1],
      {.activations = is(4, "f32") ? Activations::f32 : Activations::automatic,
       .threads = argc > 2 ? std::atoi(argv[2]) : 0,
       .isa = argc > 3 ? argv[3] : "",
       .host_memory_bytes = argc > 7 ? static_cast<int64_t>(std::atof(argv[7]) * 1e9) : 0,
       .weights = is(6, "copied")   ? WeightPlace::copied
                  : is(6, "mapped") ? WeightPlace::mapped
                                    : WeightPlace::automatic,
       .beyond_memory = nibble::BeyondMemory::streamed},
      is(5, "load")     ? Extent::loading
      : is(5, "prompt") ? Extent::prompts
                        : Extent::everything);
}
