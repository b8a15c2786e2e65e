// Whether a format of keys and values keeps what its definition promises, on numbers that are made
// here: what is read of normal lines is as near to them as the format allows, and keys that have a
// norm correction keep their norm. A mistake in storing or reading shows without a model.
#pragma once

#include <functional>
#include <string>

#include "model/kv_codec.h"

namespace nibble {

/// Relative errors of read lines: the root of the mean of |read - line|^2 over that of |line|^2.
/// Keys of a format that rotates are compared in its own space.
struct KvFormatErrors {
  double keys = 0.0;
  double values = 0.0;
  double key_norm = 0.0;  // the largest | |read| / |key| - 1 |
};

/// Stores a line and reads it, as kv_keep() does.
using KvKeep = std::function<void(KvFormat, KvSide, std::span<const float>, float*)>;

/// Measures 512 lines of `head_dim` normal numbers, the same every time. CHECKs that the format can
/// keep them.
KvFormatErrors measure_kv_format(KvFormat format, int64_t head_dim, const KvKeep& keep = kv_keep);

/// Empty if the errors are those of the format; else one line that says which is not. The errors of
/// a format on normal numbers follow from its definition: E4M3 0.027, 16 Lloyd-Max levels 0.0975,
/// 16 uniform steps over a line's range and E2M1 under a scale for 16 about 0.1; BF16 0.0017.
std::string kv_format_fault(KvFormat format, const KvFormatErrors& errors);

}  // namespace nibble
