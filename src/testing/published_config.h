// The config.json of a published model.
#pragma once

#include <string>

#include "base/concat.h"
#include "base/file.h"
#include "base/json.h"
#include "testing/source_dir.h"

namespace nibble {

/// That of tests/golden/configs by its name without ".json".
inline Json published_config(const std::string& name) {
  const std::string path = concat(NIBBLE_SOURCE_DIR "/tests/golden/configs/", name, ".json");
  return parse_json(read_text_file(path, uint64_t{1} << 20).value(), path).value();
}

}  // namespace nibble
