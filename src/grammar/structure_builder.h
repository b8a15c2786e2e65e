// StructureBuilder: compiles structures for a vocabulary, with no limits on time and memory other
// than a count of the work. Private to this module; structure_worker.h is what limits it.
#pragma once

#include <array>
#include <memory>

#include "grammar/compiled_grammar.h"

namespace nibble {

class StructureBuilder {
 public:
  /// `mask_time_max`: that of GrammarLimits, for the grammars that are made.
  explicit StructureBuilder(GrammarCompiler::Vocabulary vocabulary,
                            std::chrono::nanoseconds mask_time_max = GrammarLimits().mask_time_max);

  /// Errors: invalid_argument, where it cannot be enforced, has no text that ends, or needs more
  /// than `looks_max` looks at a token (grammar_work.h). Throws std::bad_alloc. Any thread.
  Result<std::shared_ptr<const Grammar>> build(const GrammarSource& source,
                                               uint64_t looks_max) const;

  /// Gives what build() gives, of a grammar that was compiled for this vocabulary elsewhere.
  std::shared_ptr<const Grammar> with_line_breaks(xgrammar::CompiledGrammar compiled) const;

  const xgrammar::TokenizerInfo& tokenizer() const { return *tokenizer_; }

 private:
  std::unique_ptr<xgrammar::TokenizerInfo> tokenizer_;
  std::vector<Grammar::LineBreak> line_breaks_;
  Grammar::Encode encode_;
  std::chrono::nanoseconds mask_time_max_;
  std::array<uint32_t, 256> tokens_by_first_ = {};  // how many begin with each byte
};

}  // namespace nibble
