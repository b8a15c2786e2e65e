// The golden checks every backend passes, as gtest expectations: one call per check and case.
#pragma once

#include <memory>
#include <vector>

#include "testing/golden.h"
#include "testing/test_session.h"

namespace nibble {

/// Returns the logits of a golden's sequence, fed to the session in pieces of `piece` tokens, the
/// last of which may be shorter. feed: its sequence in the session and its arithmetic.
std::vector<float> logits_in_pieces(TestSession& session, const GoldenSequence& golden,
                                    size_t piece, TestSession::Feed feed = {});

class GoldenChecks {
 public:
  /// `logit_error_max`: bar on relative_error of each logit comparison (the house bar is 1e-3).
  GoldenChecks(const std::string& name, const BackendFactory& factory,
               const BackendOptions& options, double logit_error_max = 1e-3);

  /// Every sequence alone, prefilled in chunks of `piece` tokens (0: whole).
  void expect_prefill(int piece);
  /// Holds the prefill of a backend with KvCache::fp8 and F32 activations against the logits with
  /// rounded keys and values, in the cases that have them. A number whose rounding turns over
  /// because of its last bit in F32 shows.
  /// Compares the cases that have logits with pages in this format.
  void expect_prefill_with_kv(KvCache kind, int piece);
  /// All sequences in one batch, in chunks of different lengths, so that they end apart.
  void expect_mixed_batch();
  /// The same bits whole, in chunks of 1, 7 and 64, and mixed with other sequences.
  void expect_same_bits();
  /// A state kept inside a chunk and restored later gives the same logits again.
  void expect_snapshots();
  /// Drafts, some of them wrong: the accepted rows have the bits of rows fed one by one, and the
  /// rejected ones leave no trace.
  void expect_drafts();
  /// Greedy continuation token by token. A differing token is accepted, and reported, only when the
  /// two logits are within 1e-3 of the logits' standard deviation; the comparison ends there.
  void expect_greedy();
  /// Quantized cases: mean KL divergence to the distributions with quantized activations, or to
  /// those with quantized weights only; at most the house bar of 1e-3.
  enum class Distributions : uint8_t { declared, weights_only };
  void expect_divergence(Distributions expected);

  const Golden& golden() const { return golden_; }
  Backend& backend() { return *backend_; }
  /// Prints the largest error seen by any expectation so far.
  void report() const;

 private:
  TestSession session(int sequences);
  void expect_logits(std::span<const float> found, size_t sequence, size_t first_row);
  std::vector<float> prefill(TestSession& session, size_t sequence, int piece);
  /// Logits per sequence of a run in which all sequences share every batch.
  std::vector<std::vector<float>> mixed_logits();

  Golden golden_;
  std::unique_ptr<Backend> backend_;
  double logit_error_max_;
  double error_seen_ = 0.0;
};

/// Names a parametrised test after its case: "model/dense-tied" -> "dense_tied".
std::string golden_test_name(const std::string& name);

}  // namespace nibble
