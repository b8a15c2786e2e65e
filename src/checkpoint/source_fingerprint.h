// A short name for the state of a checkpoint folder, to see whether it changed. Not a proof of
// every byte: reading 72 GB twice would double the work that it guards.
#pragma once

#include <string>

#include "base/result.h"
#include "checkpoint/checkpoint.h"

namespace nibble {

/// SHA-256 over config.json and, per weight file: name, size, time of last change, the header and
/// 16 pieces of 64 KiB spread over the file. Errors: io, corrupt (a file that shrank).
Result<std::string> source_fingerprint(const Checkpoint& checkpoint);

}  // namespace nibble
