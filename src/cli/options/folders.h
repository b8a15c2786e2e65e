// Folders: what one is called, where a user's own files of the program are, and which folder the
// words of a command mean.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "cli/options/hub_cache.h"
#include "cli/verb.h"

namespace nibble {

// A row for the table of every verb that takes a checkpoint.
inline constexpr Option kRevisionOption = {
    "revision", "REV", "",
    "branch, tag or commit of a model of the Hugging Face cache, as in ORG/NAME@REV"};

/// The last part of a path as a name: "models/tiny/", or "." inside it, is "tiny".
std::string folder_name(const std::filesystem::path& path);

/// `nibble` in the folder that the environment's `variable` names (if that is absolute), else in
/// `fallback` of the home folder: user_folder("XDG_CACHE_HOME", ".cache"), as the XDG base
/// directory specification has it. Empty: neither is known.
std::filesystem::path user_folder(const char* variable, std::string_view fallback);

/// The model that `word` means on the hub. Nothing: something of that path is here, or the word has
/// not the form ORG/NAME[@REV].
std::optional<HubName> hub_name_of(const std::string& word);

/// The checkpoint folder that `word` means: a path, or with the form ORG/NAME[@REV] a model of the
/// Hugging Face cache, or its NAME[@REV] alone where no other owner's model there has it; a path
/// that exists wins, which a line says if the cache has the model too.
/// `revision` is asked for beside the word, or empty. Errors: those of find_hub_folder.
Result<std::filesystem::path> checkpoint_folder(const std::string& word, Terminal& terminal,
                                                SnapshotNeeds needs = SnapshotNeeds::weights,
                                                std::string_view revision = {});

/// checkpoint_folder of the first positional and of --revision.
Result<std::filesystem::path> first_folder(const Arguments& arguments, Terminal& terminal,
                                           SnapshotNeeds needs = SnapshotNeeds::weights);

}  // namespace nibble
