// The configuration file (TOML): the flags of verbs, with their names as keys, in a table for each
// verb. What it says is checked here as far as names and types go; values are checked as flags are.
//
//   [serve]
//   model = "Qwen/Qwen3.6-35B-A3B"
//   port = 9000
//   web = false                                  # a switch
//   served-model-name = ["qwen", "default"]      # several words
//   speculative-config = { method = "ngram" }    # JSON
//   api-key = { file = "/run/secrets/nibble" }   # a secret stands in a file of its own
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "cli/verb.h"

namespace nibble {

/// Reads the file of a secret: its lines, with commas between them.
using SecretReader = std::function<Result<std::string>(const std::string& path)>;

/// The settings that `text`, called `source` in messages, has for `verb`. Every table is checked;
/// the secrets of other verbs are not read. Errors, each with its line: what is not TOML, an
/// unknown verb or key (with the nearest one), a type that the option cannot have, a secret that
/// stands in it.
ConfigSettings parse_config(std::string_view text, std::string_view source, const Verb& verb,
                            const SecretReader& secrets);

/// The secret of a file of at most 64 KiB. Errors: no such file, an empty one, control characters.
Result<std::string> read_secret(const std::string& path);

/// The settings of the file that --config or NIBBLE_CONFIG names; without them of the first that is
/// there of nibble/config.toml in $XDG_CONFIG_HOME (or ~/.config) and in the folders of
/// $XDG_CONFIG_DIRS (or /etc/xdg); none if they name the empty text or there is no such file.
ConfigSettings read_config(const Verb& verb, std::span<const std::string> words,
                           EnvironmentLookup environment);

}  // namespace nibble
