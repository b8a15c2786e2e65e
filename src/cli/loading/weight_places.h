// The place of a CPU's weights: the flags, the mapping of the files, and lines for people, with
// the speed that streamed ones can have.
#pragma once

#include <string>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "cli/verb.h"
#include "model/backend_options.h"
#include "model/config/config.h"

namespace nibble {

inline constexpr Option kWeightsOption = {
    "weights", "auto|mapped|copied", "auto",
    "cpu backend: auto reads routed experts and the embedding where the files are mapped (page "
    "cache) and copies the rest to memory of its own, interleaved; mapped copies nothing that it "
    "can read there, which is slower for models without experts; copied copies all"};
inline constexpr Option kStreamWeightsOption = {
    "stream-weights", "", "false",
    "cpu backend: experts beyond the free memory are read from the disk as they are wanted; the "
    "speed is told at start. Without it such a checkpoint is refused"};
/// Reads the rows above. Errors: invalid_argument.
Result<void> read_weight_places(const Arguments& arguments, BackendOptions& options);
/// `hindrance`: why no file can be mapped ("the cuda backend"), or empty. Errors: invalid_argument,
/// for flags that cannot be followed then.
Result<void> check_weight_places(const BackendOptions& options, std::string_view hindrance);
/// Maps the files of a checkpoint for who reads weights there. Where a file system maps none, and
/// nothing asked for it, weights are copied, and a line in `notice` says so. Errors: those of
/// Checkpoint::map_files.
Result<void> map_weights(WeightPlace place, Checkpoint& checkpoint, std::string& notice);

/// Weights of a CPU, and what they are read from.
struct PlacedWeights {
  const HostWeights& weights;
  const ModelConfig& config;
  const Checkpoint& checkpoint;
  int64_t memory_bytes = 0;  // that are free for cached files
};
/// Lines about them, each with its newline; empty where less than 1 GB is mapped. Where weights are
/// streamed it measures the disk, by 128 MB. Errors: those of reading.
Result<std::string> weight_places_notice(const PlacedWeights& placed);

/// Bytes of experts that a token reads from the disk on average, where `cached` bytes of all mapped
/// ones are in memory and the router chooses alike.
double streamed_bytes_per_token(const HostWeights& weights, const MoeConfig& moe, int64_t cached);

}  // namespace nibble
