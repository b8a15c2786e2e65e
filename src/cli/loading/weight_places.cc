// The speed of the disk is measured where the weights are, past the page cache.
#include "cli/loading/weight_places.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "base/thread_pool.h"
#include "checkpoint/direct_file.h"

namespace nibble {
namespace {

constexpr int kReaders = 4;
constexpr int64_t kReadBytes = int64_t{1} << 20;  // about a matrix of an expert
constexpr int kReads = 128;
constexpr int64_t kToldBytes = 1'000'000'000;  // of mapped weights; fewer surprise nobody

std::string megabytes(double bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.0f MB", bytes * 1e-6);
  return text;
}

/// Bytes per second of reads all over the largest file, several at once.
Result<double> disk_speed(const Checkpoint& checkpoint) {
  uintmax_t size = 0;
  std::filesystem::path largest;
  for (const std::string& name : checkpoint.files()) {
    const auto path = checkpoint.folder() / name;
    std::error_code failure;
    const uintmax_t bytes = std::filesystem::file_size(path, failure);
    if (!failure && bytes > size) size = bytes, largest = path;
  }
  const DirectFile file = TRY(DirectFile::open(largest));
  const auto pieces = static_cast<size_t>(size / kReadBytes);
  const auto reads = std::min<size_t>(kReads, pieces);
  if (reads == 0) return 0.0;
  std::vector<Result<void>> outcomes(reads);
  ThreadPool readers(kReaders);
  const auto begin = std::chrono::steady_clock::now();
  readers.parallel_for(reads, 1, [&](size_t first, size_t last) {
    std::vector<std::byte> piece(kReadBytes);
    for (size_t i = first; i < last; ++i)
      outcomes[i] = file.read_at(piece, i * pieces / reads * kReadBytes);
  });
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  for (const Result<void>& outcome : outcomes) TRY(outcome);
  return static_cast<double>(reads) * kReadBytes / seconds.count();
}

Result<std::string> streaming_line(const PlacedWeights& placed) {
  const HostWeights& weights = placed.weights;
  const int64_t cached = std::min(placed.memory_bytes, weights.mapped);
  std::string text = concat("streaming: the files' weights do not fit memory, which holds ",
                            megabytes(static_cast<double>(cached)), " of them");
  if (!placed.config.moe) return text + "\n";
  const double bytes = streamed_bytes_per_token(weights, *placed.config.moe, cached);
  text += concat("; a token reads about ", megabytes(bytes), " of experts from the disk");
  const Result<double> speed = disk_speed(placed.checkpoint);
  if (!speed.ok() && speed.error().code != ErrorCode::unsupported) return speed.error();
  if (!speed.ok() || speed.value() == 0.0) return text + ", whose speed could not be measured\n";
  char rate[48];
  std::snprintf(rate, sizeof rate, "about %.2f tokens/s", speed.value() / std::max(bytes, 1.0));
  return concat(text, " at ", megabytes(speed.value()), "/s: ", rate, "\n");
}

}  // namespace

Result<void> read_weight_places(const Arguments& arguments, BackendOptions& options) {
  const std::string word = TRY(arguments.choice(kWeightsOption.name, {"auto", "mapped", "copied"}));
  if (word == "mapped") options.weights = WeightPlace::mapped;
  if (word == "copied") options.weights = WeightPlace::copied;
  if (arguments.enabled(kStreamWeightsOption.name)) options.beyond_memory = BeyondMemory::streamed;
  return {};
}

Result<void> check_weight_places(const BackendOptions& options, std::string_view hindrance) {
  const bool streams = options.beyond_memory == BeyondMemory::streamed;
  const bool copies = options.weights == WeightPlace::copied;
  if (!streams && options.weights != WeightPlace::mapped) return {};
  if (hindrance.empty() && !copies) return {};
  return make_error(ErrorCode::invalid_argument,
                    {.what = streams ? "--stream-weights" : "--weights mapped",
                     .expected = "--backend cpu and a checkpoint whose files are mapped",
                     .found = hindrance.empty() ? "--weights copied" : hindrance,
                     .advice = "leave one of the flags out"});
}

Result<void> map_weights(WeightPlace place, Checkpoint& checkpoint, std::string& notice) {
  if (place == WeightPlace::copied) return {};
  const Result<void> mapped = checkpoint.map_files();
  if (mapped.ok()) return {};
  if (place == WeightPlace::mapped || mapped.error().code != ErrorCode::unsupported)
    return mapped.error();
  notice += concat(mapped.error().message, "; weights are copied to memory\n");
  return {};
}

double streamed_bytes_per_token(const HostWeights& weights, const MoeConfig& moe, int64_t cached) {
  if (weights.mapped == 0) return 0.0;
  const double missing = 1.0 - static_cast<double>(cached) / static_cast<double>(weights.mapped);
  return static_cast<double>(weights.routed_mapped) * moe.top_k / moe.experts * missing;
}

Result<std::string> weight_places_notice(const PlacedWeights& placed) {
  const HostWeights& weights = placed.weights;
  if (weights.mapped < kToldBytes && !weights.streamed) return std::string();
  std::string text =
      concat("weights: ", megabytes(static_cast<double>(weights.mapped)),
             " are read in the checkpoint's mapped files (page cache, shared by processes), ",
             megabytes(static_cast<double>(weights.copied)), " were copied\n");
  if (weights.streamed) text += TRY(streaming_line(placed));
  return text;
}

}  // namespace nibble
