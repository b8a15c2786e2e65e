// Regular expressions that name modules of the text model in every reader of compressed-tensors
// files, whatever prefix the reader gives its layers: model.language_model.layers (the file and
// transformers), language_model.model.layers (vLLM), model.layers (SGLang). Readers match a pattern
// from the start of the name, so it begins with the prefixes and cannot match mtp.* or visual.*.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nibble {

/// A module or a tensor of the MTP layer. Its name is the same for every reader.
inline bool is_mtp(std::string_view name) { return name.starts_with("mtp."); }

/// True for modules of the text model: layers.N.*, lm_head and embed_tokens under such a prefix.
bool in_text_model(std::string_view module);

/// Patterns that match all of `modules` and none of `others`. Numbers are free where no other
/// module has that shape; else the layers are listed; else each module has a pattern of its own.
/// Modules of the MTP layer, whose name no reader changes, have patterns of their own if no other
/// one there has their shape. What else is not in the text model is named in full. "...mlp.experts"
/// stands for all experts of a layer.
std::vector<std::string> target_patterns(const std::vector<std::string>& modules,
                                         const std::vector<std::string>& others);

}  // namespace nibble
