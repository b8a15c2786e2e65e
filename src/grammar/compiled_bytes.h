// A compiled grammar as bytes and back, between the process that compiles it and the one that uses
// it, and the memory that it takes. Private to this module: it looks inside xgrammar's objects.
#pragma once

#include <xgrammar/compiler.h>

#include <string>
#include <string_view>

#include "base/result.h"

namespace nibble {

std::string bytes_of(const xgrammar::CompiledGrammar& compiled);

/// Errors: corrupt, where the bytes are not what bytes_of() gives for this vocabulary.
Result<xgrammar::CompiledGrammar> compiled_of(std::string_view bytes,
                                              const xgrammar::TokenizerInfo& tokenizer);

/// The bytes that it has allocated, without those of the vocabulary: an upper bound that is a
/// little more than what there is.
size_t memory_of(const xgrammar::CompiledGrammar& compiled);

}  // namespace nibble
