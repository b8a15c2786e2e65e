// The Hugging Face cache: finds the snapshot of a model that huggingface_hub has downloaded. It
// reads the folders alone and fetches nothing. Layout: huggingface_hub's guide "Understand
// caching".
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace nibble {

/// A model's name on the hub, "org/name", and a branch, tag or commit of it; empty: main.
struct HubName {
  std::string repository;
  std::string revision;
};

/// `word` as "org/name" or "org/name@revision". Nothing: it has not the form of a name on the hub,
/// so it is a path: other than one slash, a part that starts or ends with '.' or '-', "..", "--",
/// other characters than letters, digits and "._-".
std::optional<HubName> parse_hub_name(std::string_view word);

/// Looks up an environment variable; nullptr: not set.
using HubEnvironment = const char* (*)(const char* name);

/// The folder where huggingface_hub keeps models: HF_HUB_CACHE, else HUGGINGFACE_HUB_CACHE, else
/// `hub` in HF_HOME, else in XDG_CACHE_HOME/huggingface, else in ~/.cache/huggingface; ~ and
/// $VARIABLE are replaced. A variable that is empty counts as not set.
std::filesystem::path hub_cache_folder(HubEnvironment environment);

/// The files of a snapshot that the caller reads: its weights too, or the other files alone.
enum class SnapshotNeeds : uint8_t { weights, papers };

/// The folder of `name` in the `cache`. Errors: invalid_argument for a revision that cannot be one;
/// not_found, with the command that downloads it, for a model or revision that is not there and for
/// a snapshot that misses files: one whose link points nowhere, config.json, a shard of the index.
Result<std::filesystem::path> find_hub_folder(const std::filesystem::path& cache,
                                              const HubName& name, SnapshotNeeds needs);

}  // namespace nibble
