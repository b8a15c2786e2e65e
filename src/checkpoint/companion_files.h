// The files of a checkpoint folder that are neither weights nor config.json: tokenizer, templates,
// processor and generation configs, licence, model card.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"

namespace nibble {

/// Paths relative to `folder`, sorted: plain files of the folder and of its subfolders, without
/// hidden files and folders, weights of any format, indexes, and the folder's own config.json and
/// hf_quant_config.json. A subfolder that has weights is another model and is left out. Links to
/// files are followed (a hub cache is made of links), links to folders are not. Errors: io;
/// unsupported for more than 20,000 files or 16 levels.
Result<std::vector<std::filesystem::path>> companion_files(const std::filesystem::path& folder);

/// Copies the bytes into a new file. Errors: invalid_argument when it exists, io, no_space.
Result<void> copy_bytes(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace nibble
