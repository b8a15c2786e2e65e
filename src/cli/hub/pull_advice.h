// `nibble pull` says before the first weight: what of the model this machine can serve, by the plan
// that `nibble plan` makes, and whether the disk has room.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "cli/verb.h"

namespace nibble {

/// Lines about a model of which only config.json is here: as it is stored and, if it is not
/// quantized, as `nibble quantize` would write it; on the first card of this machine, else on its
/// CPU. A model that this build cannot serve is a line too, no error.
std::string machine_advice(std::string_view config, Terminal& terminal);

/// Errors: no_space with the numbers, if the file system of `folder` has not so many bytes free.
Result<void> check_room(const std::filesystem::path& folder, uint64_t bytes);

}  // namespace nibble
