// Drafter: proposes what a sequence may say next. A proposal is checked by the model in the same
// pass that would make the next token: a wrong one costs time and never changes the text.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/sequence.h"

namespace nibble {

class Drafter {
 public:
  virtual ~Drafter() = default;
  /// At most `count_max` tokens that may follow the sequence's prompt and generated tokens, in
  /// order; fewer or none if it knows nothing. Deterministic in what the sequence says.
  virtual void propose(const Sequence& sequence, int32_t count_max,
                       std::vector<int32_t>& drafts) = 0;
};

/// Prompt lookup: what followed the last time the text went as it goes now. Costs no model. Pays
/// where answers repeat their prompts: edits of code, extraction, quotations.
class NgramDrafter final : public Drafter {
 public:
  struct Options {
    int32_t match_min = 2;          // tokens that must be equal
    int32_t match_max = 4;          // as many are tried first
    int32_t look_back_max = 65536;  // tokens searched
  };
  explicit NgramDrafter(const Options& options);
  /// The longest match wins, of equally long ones the latest.
  void propose(const Sequence& sequence, int32_t count_max, std::vector<int32_t>& drafts) override;

 private:
  Options options_;
};

}  // namespace nibble
