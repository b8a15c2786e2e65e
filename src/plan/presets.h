// The published models by name, so that their plans need no file: the config.json of each, compiled
// in. Shapes alone; weights come from elsewhere.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace nibble {

struct BuiltinPreset {
  std::string_view name;  // "qwen3.6-35b-a3b"
  std::string_view text;  // its config.json
};
/// The files of tests/golden/configs, by name.
std::span<const BuiltinPreset> builtin_presets();

/// A preset by its name, or by a part of it between dashes that no other has: "35b-a3b", "27b"; in
/// any case of letters. nullptr: there is none such.
const BuiltinPreset* find_preset(std::string_view text);
/// Names with commas.
std::string known_presets();
/// Its config.json.
Json preset_config(const BuiltinPreset& preset);

}  // namespace nibble
