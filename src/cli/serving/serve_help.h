// The help of `nibble serve`, which has more options than fit a screen: the most used ones with the
// names of the others, or all of them in groups.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "cli/verb.h"

namespace nibble {

/// Options that belong together, by their names in the order of the help.
struct OptionGroup {
  std::string_view title;
  std::span<const std::string_view> names;
};
/// Each option of `nibble serve` is in one of them.
std::span<const OptionGroup> serve_option_groups();
/// Those that most start-ups need; each is in a group as well.
std::span<const std::string_view> most_used_serve_options();

enum class HelpLength : uint8_t { most_used, all };
std::string serve_help(HelpLength length);

}  // namespace nibble
