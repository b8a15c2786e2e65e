// Names on the Hugging Face Hub: models, revisions, commits, and the paths of files in a
// repository, each with the rules that make it safe to build paths and addresses from.
#pragma once

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

/// 40 lower-case hexadecimal digits.
bool is_hub_commit(std::string_view text);

/// Errors: invalid_argument for a revision that cannot be one; a revision becomes a path below
/// `refs`, so it must stay there. An empty one is fine.
Result<void> check_hub_revision(const HubName& name);

/// The folder of a model in the cache: "org/name" is "models--org--name".
std::string hub_folder_name(std::string_view repository);

/// The model that a folder of the cache holds; nothing if the folder holds none.
std::optional<std::string> repository_of_folder(std::string_view folder);

/// A path of a file as the hub lists it may become a path below a folder here. Errors: corrupt for
/// an absolute path, "..", ".", an empty part, a backslash, control characters, a part of more than
/// 255 bytes, more than 1,024 bytes in all.
Result<void> check_hub_path(std::string_view path);

/// Percent-encoded for an address; '/' stays.
std::string url_path(std::string_view path);

}  // namespace nibble
