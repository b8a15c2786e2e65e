// model.safetensors.index.json: which shard holds which tensor. Not the shards themselves.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace nibble {

inline constexpr std::string_view kIndexFile = "model.safetensors.index.json";
inline constexpr std::string_view kSingleFile = "model.safetensors";
inline constexpr std::string_view kConfigFile = "config.json";

struct CheckpointIndex {
  struct Place {
    std::string tensor;
    int file = 0;
  };
  std::vector<std::string> files;  // sorted, unique
  std::vector<Place> places;       // sorted by tensor name
};

/// Parses the text. File names must be plain names that end in ".safetensors"; total_size is only
/// informative (some writers store a float) and not read. Errors: corrupt.
Result<CheckpointIndex> parse_checkpoint_index(std::string_view text);

/// The weight files among the names of a folder without an index: kSingleFile alone if it is one of
/// them, or else all that are plain names and end in ".safetensors", sorted.
std::vector<std::string> weight_files_of(const std::vector<std::string>& names);
/// The safetensors files of a folder without an index: kSingleFile, or else all, sorted.
/// Errors: not_found, io.
Result<std::vector<std::string>> list_safetensors(const std::filesystem::path& folder);

}  // namespace nibble
