// The inside of a Grammar: xgrammar's objects. Private to this module.
#pragma once

#include <xgrammar/compiler.h>

#include <atomic>
#include <chrono>
#include <functional>

#include "grammar/grammar_compiler.h"

namespace nibble {

class Grammar {
 public:
  /// A token of line breaks alone.
  struct LineBreak {
    int32_t token = 0;
    int count = 0;
  };

  using Encode = std::function<std::vector<int32_t>(std::string_view)>;

  Grammar(xgrammar::CompiledGrammar made, int32_t tokens, std::vector<LineBreak> breaks,
          Encode encoded, std::chrono::nanoseconds mask_time)
      : compiled(std::move(made)),
        vocab_size(tokens),
        line_breaks(std::move(breaks)),
        encode(std::move(encoded)),
        mask_time_max(mask_time) {}

  xgrammar::CompiledGrammar compiled;
  int32_t vocab_size = 0;
  std::vector<LineBreak> line_breaks;      // of one or two
  Encode encode;                           // as the vocabulary's; may be empty
  std::chrono::nanoseconds mask_time_max;  // the same as in GrammarLimits
  /// A mask took long. From then on no pass waits for one, however short, and there are no drafts.
  mutable std::atomic<bool> slow = false;
  /// Called before each of its masks is made, by the thread that makes it. For tests
  /// (slow_masks.h).
  mutable std::function<void()> before_mask;
};

}  // namespace nibble
