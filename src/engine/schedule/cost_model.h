// CostModel: how long a forward pass takes, in milliseconds, as a formula of what is in it. Starts
// from a prior and is fitted to measured passes. No clock; the same observations in the same order
// give the same model.
//
//   ms = pass + decode_row D + drafted_row V + [any prefill] prefill
//        + sum over chunks (token n + pair (2 n d + n^2))
//
// D decode rows, one of each sequence, and V drafted rows after them, which read no state of their
// own and are cheaper; a chunk is n prompt rows after d tokens that are already in the cache.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace nibble {

/// The contents of a pass, as far as its time depends on them.
struct PassShape {
  int32_t decode_rows = 0;
  int32_t drafted_rows = 0;
  int32_t prefill_tokens = 0;
  double prefill_pairs = 0.0;  // sum of 2 n d + n^2

  void add_piece(int32_t depth, int32_t rows);
};

/// Milliseconds per unit. The defaults are those of a 35B-A3B model on one consumer GPU, a
/// quadratic fit through published prefill times.
struct CostParameters {
  double pass = 4.5;
  double decode_row = 0.08;
  double prefill = 10.0;  // once in a pass with any prompt row
  double prefill_token = 0.0604;
  double prefill_pair = 0.513e-6;
  double drafted_row = 0.05;  // little enough to be tried, and then measured
};

class CostModel {
 public:
  /// Every parameter must be positive and finite.
  explicit CostModel(const CostParameters& prior = {});

  double ms(const PassShape& shape) const;
  /// The time that `rows` prompt rows after `depth` tokens add to a pass that has some prefill
  /// already.
  double piece_ms(int32_t depth, int32_t rows) const;
  /// The most rows after `depth` tokens whose piece_ms stays within `ms`; 0 if none does.
  int32_t rows_within(int32_t depth, double ms) const;
  const CostParameters& parameters() const { return current_; }

  /// A pass of this shape took `ms`. Whatever is observed, the parameters stay finite, positive and
  /// within a factor of kScaleMax of the prior; what is not a positive finite time is left out.
  void observe(const PassShape& shape, double ms);

  static constexpr double kScaleMax = 1e4;

 private:
  static constexpr size_t kTerms = 6;
  using Terms = std::array<double, kTerms>;
  /// Decayed normal equations of one kind of pass.
  struct Evidence {
    std::array<Terms, kTerms> squares = {};
    Terms products = {};
    void add(const Terms& x, double y, double weight);
  };

  void fit();

  Terms prior_;               // milliseconds per unit
  Terms scale_;               // what was learned: multiples of the prior
  CostParameters current_;    // prior times scale
  Evidence decode_only_;      // kept apart, so that hours of decoding do not erase
  Evidence with_prefill_;     // what prefill costs
  double usual_error_ = 1.0;  // decayed mean of relative errors: what counts as an outlier
};

}  // namespace nibble
