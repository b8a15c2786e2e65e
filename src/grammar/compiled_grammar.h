// The inside of a Grammar: xgrammar's objects. Private to this module.
#pragma once

#include <xgrammar/compiler.h>

#include "grammar/grammar_compiler.h"

namespace nibble {

class Grammar {
 public:
  /// A token of line breaks alone.
  struct LineBreak {
    int32_t token = 0;
    int count = 0;
  };
  xgrammar::CompiledGrammar compiled;
  int32_t vocab_size = 0;
  std::vector<LineBreak> line_breaks;  // of one or two
};

}  // namespace nibble
