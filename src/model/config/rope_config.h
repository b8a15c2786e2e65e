// Reads the rotary position settings of a config.json in both spellings.
#pragma once

#include "base/result.h"
#include "model/config/config.h"
#include "model/config/config_section.h"

namespace nibble {

struct RopeContext {
  int head_dim = 0;
  double default_rotary_factor = 1.0;  // share of head_dim when the file says nothing
  bool multi_axis = false;             // the family takes (t, h, w) positions
  int64_t max_positions = 0;
};

/// `text` is the section with the text model's keys. transformers 5 nests everything in
/// `rope_parameters`; transformers 4 has `rope_scaling` (null for default) beside `rope_theta` and
/// `partial_rotary_factor`. A `partial_rotary_factor` in both places is taken from inside, as by
/// transformers, which writes both. Errors: unsupported for an unknown rope_type or rope key,
/// corrupt for wrong or contradicting values.
Result<RopeConfig> parse_rope(const ConfigSection& text, const RopeContext& context);

/// True if rope_parameters may have this key.
bool known_rope_key(std::string_view key);

}  // namespace nibble
