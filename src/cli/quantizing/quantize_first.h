// --quantize: a BF16 checkpoint is quantized once, into a folder that later starts find again.
#pragma once

#include <array>
#include <filesystem>

#include "cli/verb.h"

namespace nibble {

// Rows for a verb's option table, as kQuantizeFirstOptions.
inline constexpr Option kQuantizeOption = {
    "quantize", "RECIPE", "",
    "quantize a BF16 DIR first, as `nibble quantize --recipe` would; later starts find the result"};
inline constexpr Option kQuantizedFolderOption = {
    "quantized-folder", "FOLDER", "",
    "where the results of --quantize are kept; default ~/.cache/nibble/quantized"};
inline constexpr std::array kQuantizeFirstOptions = {kQuantizeOption, kQuantizedFolderOption};

/// The folder to load: that of the first positional, or with --quantize its quantized copy, made
/// now (or continued) unless it is there. The copy's name holds the source's state, the recipe
/// and the program's version. Errors: those of first_folder and quantize; invalid_argument where
/// there is no place to keep it.
Result<std::filesystem::path> folder_to_load(const Arguments& arguments, Terminal& terminal);

}  // namespace nibble
