// One table of two.
#include "cli/plan/plan_foreign.h"

#include <algorithm>

#include "cli/serving/vllm_flags.h"

namespace nibble {

std::span<const ForeignFlag> plan_foreign_flags(std::span<const Option> own) {
  static const std::vector<ForeignFlag> kFlags = [own] {
    const auto taken = [own](const Option& option) {
      return std::ranges::any_of(own, [&](const Option& mine) {
        return mine.name == option.name || (!mine.alias.empty() && mine.alias == option.name);
      });
    };
    std::vector<ForeignFlag> flags;
    for (const Option& option : kServeVerb.options)
      if (!taken(option)) flags.push_back({option, "*", "memory does not depend on it", ""});
    flags.insert(flags.end(), kVllmFlags.begin(), kVllmFlags.end());
    return flags;
  }();
  return kFlags;
}

}  // namespace nibble
