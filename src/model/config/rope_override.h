// Rotary settings from the command line: keys that replace those of a config.json before it is
// parsed. What the keys mean is rope_config.h.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "model/config/config.h"

namespace nibble {

struct RopeOverride {
  std::string flag;  // the flag that it came from, for messages: "--rope-scaling"
  Json keys;         // an object: keys of rope_parameters with their new values
};

/// `text` as the keys themselves: {"rope_type": "yarn", "factor": 4}. Errors: invalid_argument.
Result<RopeOverride> parse_rope_scaling(std::string_view flag, std::string_view text);

/// `text` as changes of a config.json, as vLLM takes them: the keys in rope_parameters or
/// rope_scaling, at the top or in text_config. Errors: invalid_argument, which names any other key.
Result<RopeOverride> parse_config_overrides(std::string_view flag, std::string_view text);

/// ModelConfig::parse of `config` with the override's keys in place of its own; keys that the
/// override does not name stay. Errors: those of ModelConfig::parse; with an override they name its
/// flag and are invalid_argument.
Result<ModelConfig> parse_config(const Json& config, const std::optional<RopeOverride>& change);

}  // namespace nibble
