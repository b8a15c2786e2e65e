// The checks of drafts that every backend with an MTP layer passes, as gtest expectations.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "testing/golden.h"
#include "testing/test_session.h"

namespace nibble {

class DraftChecks {
 public:
  /// `error_max`: bar on relative_error of the logits of a draft.
  DraftChecks(const std::string& name, const BackendFactory& factory, const BackendOptions& options,
              double error_max = 1e-3, const DraftVariant& variant = {});

  /// Tokens and logits of every draft are those of the golden, with the tokens before fed in chunks
  /// of `piece` (0: whole).
  void expect_golden(int piece);
  /// The same bits however the tokens before came there: in chunks, beside other sequences, as
  /// drafts of which some were rejected, from a snapshot; and in a batch with others.
  void expect_same_bits();
  /// Logits of the model itself have the bits that they have without the layer.
  void expect_the_model_unchanged();
  /// A row that is not finite leaves zeros for drafts: they go on, and pages stay finite.
  void expect_not_finite_rows_to_end_drafts_only();

  /// The drafts at each place: the logits of each step, and the tokens of all.
  struct Drafts {
    std::vector<std::vector<float>> logits;
    std::vector<int32_t> tokens;
    bool operator==(const Drafts&) const = default;
  };
  using ByPlace = std::map<int32_t, Drafts>;
  /// Drafts at every place, with the tokens before fed in chunks of `piece`.
  ByPlace drafts(int piece);
  /// The same drafts as another backend with such weights makes, within the bar, and each among the
  /// tokens of the variant.
  void expect_those_of(DraftChecks& other);

  Backend& backend() { return *backend_; }
  void report() const;

 private:
  /// Brings sequence 0 of a session to `place` tokens.
  using Advance = std::function<void(TestSession&, int place)>;
  ByPlace drafts_after(const Advance& advance, int sequences = 1);
  Drafts at_place(TestSession& session, int place, const std::vector<TestSession::Newest>& beside);
  TestSession::Feed feed(int from, int to) const;
  void feed_drafts(TestSession& session, int place) const;
  bool nearly_best(std::span<const float> logits, size_t token, size_t best) const;
  void expect_same(const ByPlace& found, const ByPlace& expected, const std::string& what) const;

  Golden golden_;
  BackendFactory factory_;
  BackendOptions options_;
  std::unique_ptr<Backend> backend_;
  double error_max_;
  double error_seen_ = 0.0;
};

}  // namespace nibble
