// FisherOptions: how the weights of tokens (fisher_weights.h) are made, and the words that ask for
// them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace nibble {

struct FisherOptions {
  /// A token's weight is its square, scaled so that it leaves the trace of the moment as it is,
  /// plus this: a part of the moment without weights, which keeps what gradients are too small to
  /// see.
  double plain_share = 0.3;
  int label_draws = 1;  // tokens y that are drawn for each place, each a backward pass
  uint64_t seed = 0;    // of the draws
  /// Samples are taken together until their residual streams between all layers take this much.
  int64_t states_bytes_max = int64_t{2} << 30;
  int threads = 0;  // 0: one per usable core; the result is the same
};

/// "plain" (nothing), "fisher" or "fisher:SHARE" with the plain share, 0 to 1000. Errors:
/// invalid_argument.
Result<std::optional<FisherOptions>> parse_second_moments(std::string_view text);
/// The words for options that parse_second_moments can give.
std::string second_moments_text(const FisherOptions& options);

}  // namespace nibble
