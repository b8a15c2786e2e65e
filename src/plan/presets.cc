// Names and parts of names.
#include "plan/presets.h"

#include <algorithm>
#include <cctype>

namespace nibble {

const BuiltinPreset* find_preset(std::string_view text) {
  std::string part;
  for (const unsigned char c : text) part += static_cast<char>(std::tolower(c));
  const BuiltinPreset* found = nullptr;
  for (const BuiltinPreset& preset : builtin_presets()) {
    if (preset.name == part) return &preset;
    const bool inside =
        concat("-", preset.name, "-").find(concat("-", part, "-")) != std::string::npos;
    if (!inside || part.empty()) continue;
    if (found != nullptr) return nullptr;
    found = &preset;
  }
  return found;
}

std::string known_presets() {
  std::string names;
  for (const BuiltinPreset& preset : builtin_presets())
    names += concat(names.empty() ? "" : ", ", preset.name);
  return names;
}

Json preset_config(const BuiltinPreset& preset) {
  return parse_json(preset.text, preset.name).value();  // a test reads each
}

}  // namespace nibble
