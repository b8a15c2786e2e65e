// A tokenizer for checkpoints whose weights are random: every byte is a token, the rest of the
// vocabulary are made-up words that no text is encoded to, and the special tokens of Qwen stand at
// the ids that config.json names. Real enough for every reader of such folders; it compresses
// nothing.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace nibble {

struct MadeFile {
  std::string name;
  std::string text;
};

/// tokenizer.json, tokenizer_config.json, chat_template.jinja and generation_config.json for a
/// config.json; with a vision_config the two files of image processors too. Errors: corrupt for a
/// vocabulary or special ids that leave no room for the bytes and Qwen's 33 added tokens.
Result<std::vector<MadeFile>> made_tokenizer(const Json& config);

}  // namespace nibble
