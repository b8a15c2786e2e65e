// --quantization: vLLM's word for how a checkpoint is quantized. Formats come from the checkpoint
// alone; the word is compared with what it declares, and a contradiction is refused.
#pragma once

#include <filesystem>

#include "base/result.h"
#include "cli/verb.h"

namespace nibble {

inline constexpr Option kQuantizationOption = {"quantization", "NAME", "",
                                               "format that config.json has to declare: modelopt, "
                                               "modelopt_fp4, modelopt_mixed or compressed-tensors",
                                               "-q"};

/// Errors: invalid_argument (another name, or the checkpoint in `folder` declares something else),
/// those of reading its config.json or hf_quant_config.json. Nothing is read without the option.
Result<void> check_quantization(const Arguments& arguments, const std::filesystem::path& folder);

/// The name alone. Errors: invalid_argument.
Result<std::string> quantization_name(const Arguments& arguments);

}  // namespace nibble
