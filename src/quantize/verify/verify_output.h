// The last check of a run: what was written is verified, and withdrawn if it is not sound.
#pragma once

#include <filesystem>
#include <functional>

#include "base/result.h"
#include "quantize/verify/verify.h"

namespace nibble {

using VerifyFunction =
    std::function<Result<VerifyReport>(const std::filesystem::path&, const VerifyOptions&)>;

/// Verifies a folder that was just written. If it is not sound, or cannot be read, its config.json
/// is removed: without it no engine takes the folder for a checkpoint. Errors: those of `verify`.
Result<VerifyReport> verify_output(const std::filesystem::path& folder,
                                   const VerifyOptions& options,
                                   const VerifyFunction& verify = verify_checkpoint);

}  // namespace nibble
