// The Hugging Face cache: finds the snapshot of a model that `nibble pull` or huggingface_hub has
// downloaded. It reads the folders alone and fetches nothing. Layout: huggingface_hub's guide
// "Understand caching".
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "hub/hub_name.h"

namespace nibble {

/// Looks up an environment variable; nullptr: not set.
using HubEnvironment = const char* (*)(const char* name);

/// huggingface_hub's own folder: HF_HOME, else XDG_CACHE_HOME/huggingface, else
/// ~/.cache/huggingface; ~ and $VARIABLE are replaced.
std::filesystem::path hub_home_folder(HubEnvironment environment);

/// The folder where huggingface_hub keeps models: HF_HUB_CACHE, else HUGGINGFACE_HUB_CACHE, else
/// `hub` in hub_home_folder. A variable that is empty counts as not set.
std::filesystem::path hub_cache_folder(HubEnvironment environment);

/// The files of a snapshot that the caller reads: its weights too, or the other files alone.
enum class SnapshotNeeds : uint8_t { weights, papers };

/// The model of the cache that a word without an owner means: "qwen3.6-35b-a3b" is
/// Qwen/Qwen3.6-35B-A3B, in any case of letters, with @REV or without. Nothing: no model of the
/// cache has that name, or the word has not the form of one. Errors: invalid_argument where several
/// owners have such a model.
Result<std::optional<HubName>> find_hub_alias(const std::filesystem::path& cache,
                                              std::string_view word);

/// The folder of `name` in the `cache`. Errors: invalid_argument for a revision that cannot be one;
/// not_found, with the command that downloads it, for a model or revision that is not there and for
/// a snapshot that misses files: one whose link points nowhere, config.json, a shard of the index.
Result<std::filesystem::path> find_hub_folder(const std::filesystem::path& cache,
                                              const HubName& name, SnapshotNeeds needs);

}  // namespace nibble
