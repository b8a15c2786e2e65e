// ReservedBytes: the bytes of a model's memory by part, as a plan counts them and as a backend
// holds them. Both are in bytes that were asked for, so that they can be equal.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace nibble {

/// All in bytes. Host twins of the caches, and what a backend allocates while a pass runs, are not
/// among them; nor is what a driver takes.
struct ReservedBytes {
  int64_t weights = 0;
  int64_t tables = 0;     // rotary frequencies
  int64_t pages = 0;      // pages of the KV cache
  int64_t states = 0;     // slots of running sequences and of snapshots
  int64_t workspace = 0;  // memory of one pass
  int64_t media = 0;      // the vision tower's workspace, and the rows of media that it encoded
  /// Bytes that the device handed out for all of these, in its own steps. No plan has this part.
  int64_t mapped = 0;

  int64_t total() const { return weights + tables + pages + states + workspace + media; }
};

/// Succeeds if every part but `mapped` is the same. Errors: internal, naming the first part that
/// differs, with both numbers; `when` says at which moment ("at start").
Result<void> check_reserved(const ReservedBytes& planned, const ReservedBytes& reserved,
                            std::string_view when);

}  // namespace nibble
