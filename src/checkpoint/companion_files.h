// The files of a checkpoint folder that are neither weights nor config.json: tokenizer, templates,
// processor and generation configs, licence, model card.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"

namespace nibble {

/// Paths relative to `folder`, sorted: plain files of the folder and of additional_chat_templates/,
/// without hidden files, weights of any format, indexes, config.json and hf_quant_config.json.
/// Links are followed (a hub cache is made of links). Errors: io.
Result<std::vector<std::filesystem::path>> companion_files(const std::filesystem::path& folder);

/// Copies the bytes into a new file. Errors: invalid_argument when it exists, io, no_space.
Result<void> copy_bytes(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace nibble
