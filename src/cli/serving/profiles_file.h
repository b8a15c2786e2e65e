// A file of profiles (TOML): what `--profiles FILE` adds to the built-in ones.
//
//   default = "coder"              # holds where a request names no other
//   [[profile]]
//   name = "coder"
//   base = "thinking-coding"       # built in, or further up: what it says is copied first
//   temperature = 0.5              # any of profile_numbers()
//   thinking = true
//   template_kwargs = { preserve_thinking = true }
//   locked = ["temperature"]
#pragma once

#include <filesystem>
#include <string_view>

#include "cli/verb.h"
#include "server/request/profiles.h"

namespace nibble {

inline constexpr Option kProfilesOption = {
    "profiles", "FILE", "", "more profiles, in TOML: model names that stand for ways of asking"};

inline constexpr Option kProfileOption = {"profile", "NAME", "",
                                          "ask in the way of a profile, as docs/serving.md has it"};

/// The built-in profiles and those of `text`. Errors, with `source` and the line: what is not TOML,
/// an unknown key (with the nearest one), a wrong type, a number out of range, a name twice.
Result<Profiles> parse_profiles(std::string_view text, std::string_view source);

/// Those of the file that --profiles names; without it the built-in ones.
Result<Profiles> read_profiles(const Arguments& arguments);
/// Checks that the profile which --profile names exists.
Result<void> check_profile(const Arguments& arguments, const Profiles& profiles);

}  // namespace nibble
