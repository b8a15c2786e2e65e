// Sessions that come to the same places in different ways.
#include "testing/draft_checks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace nibble {
namespace {

constexpr int kTokensMax = 256;
constexpr int kDrafted = 4;  // rows of a pass of drafts

}  // namespace

DraftChecks::DraftChecks(const std::string& name, const BackendFactory& factory,
                         const BackendOptions& options, double error_max,
                         const DraftVariant& variant)
    : golden_(load_golden(name)), factory_(factory), options_(options), error_max_(error_max) {
  CHECK(golden_.drafts.has_value(), name, " has no drafts");
  if (!(variant == DraftVariant())) round_draft(golden_, variant);
  backend_ = factory(golden_.weights, golden_.config, options).value();
}

TestSession::Feed DraftChecks::feed(int from, int to) const {
  const GoldenSequence& golden = golden_.sequences[0];
  const auto begin = static_cast<size_t>(from);
  const auto count = static_cast<size_t>(to - from);
  return {.tokens = std::span(golden.ids).subspan(begin, count),
          .positions = std::span(golden.positions).subspan(begin, count)};
}

DraftChecks::Drafts DraftChecks::at_place(TestSession& session, int place,
                                          const std::vector<TestSession::Newest>& beside) {
  const GoldenSequence& golden = golden_.sequences[0];
  const auto at = static_cast<size_t>(place);
  Drafts found;
  for (int32_t count = 1; count <= golden_.drafts->steps; ++count) {
    std::vector<TestSession::Newest> newest = {
        {.token = golden.ids[at], .position = golden.positions[at][0], .count = count}};
    newest.insert(newest.end(), beside.begin(), beside.end());
    for (TestSession::Newest& other : newest) other.count = std::min(other.count, count);
    const TestSession::Drafted drafted = session.draft(newest);
    const auto vocab = static_cast<ptrdiff_t>(golden_.config.draft_head_rows());
    found.logits.emplace_back(drafted.logits.begin(), drafted.logits.begin() + vocab);
    found.tokens = drafted.tokens[0];
  }
  return found;
}

DraftChecks::ByPlace DraftChecks::drafts_after(const Advance& advance, int sequences) {
  TestSession session(*backend_, golden_.config,
                      {.sequences = sequences,
                       .tokens_max = kTokensMax,
                       .rows_max = kTokensMax,
                       .replay_rows = kDrafted});
  ByPlace found;
  for (const int32_t place : golden_.drafts->places) {
    advance(session, place);
    EXPECT_EQ(session.tokens(0), place);
    found[place] = at_place(session, place, {});
  }
  return found;
}

DraftChecks::ByPlace DraftChecks::drafts(int piece) {
  return drafts_after([&](TestSession& session, int place) {
    while (session.tokens(0) < place) {
      const int from = session.tokens(0);
      session.pass({feed(from, piece == 0 ? place : std::min(place, from + piece))});
    }
  });
}

/// True if a draft is not the best one only for what errors within the bar can do.
bool DraftChecks::nearly_best(std::span<const float> logits, size_t token, size_t best) const {
  double squares = 0.0;
  for (const float logit : logits) squares += double{logit} * logit;
  const double rms = std::sqrt(squares / static_cast<double>(logits.size()));
  return logits[best] - logits[token] <= 2.0 * error_max_ * rms;
}

void DraftChecks::expect_golden(int piece) {
  const GoldenDrafts& golden = *golden_.drafts;
  const ByPlace found = drafts(piece);
  const auto vocab = static_cast<size_t>(golden_.config.vocab_rows);
  auto expected = std::span(golden.logits);
  for (size_t i = 0; i < golden.places.size(); ++i) {
    const Drafts& drafted = found.at(golden.places[i]);
    bool same = true;  // a step after another draft says nothing
    for (size_t step = 0; step < drafted.logits.size(); ++step) {
      const auto logits = expected.first(vocab);
      expected = expected.subspan(vocab);
      if (!same) continue;
      const double error = relative_error(drafted.logits[step], logits);
      EXPECT_LE(error, error_max_) << golden_.name << " after " << golden.places[i];
      error_seen_ = std::max(error_seen_, error);
      const auto token = static_cast<size_t>(drafted.tokens[step]);
      const auto best = static_cast<size_t>(golden.tokens[i][step]);
      same = token == best;
      EXPECT_TRUE(same || nearly_best(logits, token, best)) << token << ", not " << best;
    }
  }
}

void DraftChecks::expect_those_of(DraftChecks& other) {
  const std::vector<int32_t>& allowed = golden_.config.draft_tokens;
  const ByPlace found = drafts(7);
  std::vector<float> all_found, all_expected;  // a few tokens may have nearly the same logits
  for (const auto& [place, expected] : other.drafts(0)) {
    const Drafts& drafted = found.at(place);
    bool same = true;
    for (size_t step = 0; step < expected.logits.size() && same; ++step) {
      all_found.insert(all_found.end(), drafted.logits[step].begin(), drafted.logits[step].end());
      all_expected.insert(all_expected.end(), expected.logits[step].begin(),
                          expected.logits[step].end());
      same = drafted.tokens[step] == expected.tokens[step];
      const auto row = [&](int32_t token) {
        const auto at = std::ranges::find(allowed, token);
        EXPECT_TRUE(allowed.empty() || at != allowed.end()) << "drafted " << token;
        return static_cast<size_t>(allowed.empty() ? token : at - allowed.begin());
      };
      const size_t token = row(drafted.tokens[step]), best = row(expected.tokens[step]);
      EXPECT_TRUE(same || nearly_best(expected.logits[step], token, best)) << token << ", " << best;
    }
  }
  const double error = relative_error(all_found, all_expected);
  EXPECT_LE(error, error_max_) << golden_.name;
  error_seen_ = std::max(error_seen_, error);
}

void DraftChecks::expect_same(const ByPlace& found, const ByPlace& expected,
                              const std::string& what) const {
  for (const auto& [place, drafts] : expected)
    EXPECT_TRUE(found.at(place) == drafts) << golden_.name << ", " << what << ", after " << place;
}

/// Generated tokens as drafts, one to four rows of a pass, of which the last are wrong.
void DraftChecks::feed_drafts(TestSession& session, int place) const {
  for (int round = 0; session.tokens(0) < place; ++round) {
    const int from = session.tokens(0);
    const int right = std::min(1 + round % kDrafted, place - from);
    std::vector<int32_t> rows(golden_.sequences[0].ids.begin() + from,
                              golden_.sequences[0].ids.begin() + from + right);
    const int wrong = std::min(kDrafted - right, kTokensMax - from - right);
    for (int i = 0; i < wrong; ++i) rows.push_back((rows.back() + 3) % golden_.config.vocab_rows);
    std::vector<std::array<int32_t, 3>> positions;
    for (size_t i = 0; i < rows.size(); ++i) {
      const size_t at = static_cast<size_t>(from) + i;
      const auto& known = golden_.sequences[0].positions;
      positions.push_back(at < known.size() ? known[at] : known.back());
    }
    session.pass({{.tokens = rows,
                   .positions = positions,
                   .arithmetic = Arithmetic::generation,
                   .write = StateWrite::replayed}});
    session.accept(0, right);
    session.draft({{.token = rows.front(), .count = 2}});  // entries that must not stay
  }
}

void DraftChecks::expect_same_bits() {
  const ByPlace whole = drafts(0);
  for (const int piece : {1, 64}) expect_same(drafts(piece), whole, concat("pieces of ", piece));
  expect_same(drafts_after([&](TestSession& s, int place) { feed_drafts(s, place); }), whole,
              "drafts accepted and rejected");
  const auto back = [&](TestSession& session, int place) {
    TestSession::Feed beyond = feed(session.tokens(0), std::min<int>(place + 20, 150));
    beyond.snapshot_after = place - session.tokens(0) - 1;
    session.pass({beyond});
    session.restore(0);
  };
  expect_same(drafts_after(back), whole, "from a snapshot");
  const auto mixed = [&](TestSession& session, int place) {
    for (const int step : {3, 500}) {
      const int from = session.tokens(0);
      const int to = std::min(place, from + step);
      TestSession::Feed other = feed(0, 5);
      other.sequence = 1;
      if (to > from) session.pass({other, feed(from, to)});
    }
  };
  expect_same(drafts_after(mixed, 2), whole, "beside another sequence");
  TestSession session(*backend_, golden_.config,
                      {.sequences = 3, .tokens_max = kTokensMax, .rows_max = kTokensMax});
  TestSession::Feed second = feed(3, 30);
  TestSession::Feed third = feed(9, 80);
  second.sequence = 1;
  third.sequence = 2;
  session.pass({second, feed(0, 90), third});
  const Drafts together =
      at_place(session, 90,
               {{.sequence = 2, .token = 5, .count = 2}, {.sequence = 1, .token = 7, .count = 1}});
  EXPECT_TRUE(together == whole.at(90)) << golden_.name << ", a batch of drafts";
}

void DraftChecks::expect_the_model_unchanged() {
  ModelConfig config = golden_.config;
  config.draft_layers = 0;
  const Weights weights = Weights::bind(*golden_.checkpoint, config).value();
  const auto plain = factory_(weights, config, options_).value();
  EXPECT_FALSE(plain->drafts());
  EXPECT_TRUE(backend_->drafts());
  const SessionLimits limits{
      .tokens_max = kTokensMax, .rows_max = kTokensMax, .replay_rows = kDrafted};
  TestSession one(*plain, config, limits), other(*backend_, golden_.config, limits);
  for (const int to : {3, 70, 149}) {
    const auto expected = one.pass({feed(one.tokens(0), to)});
    EXPECT_EQ(other.pass({feed(other.tokens(0), to)}), expected) << golden_.name << " to " << to;
    other.draft({{.token = 4, .count = 3}});
  }
  const int64_t row = int64_t{golden_.config.hidden} * int64_t{sizeof(float)};
  constexpr int64_t kAlignmentMost = 256;
  const auto expect_a_row_more = [&](int64_t with, int64_t without) {
    EXPECT_GE(with, without + row);
    EXPECT_LT(with, without + row + kAlignmentMost);
  };
  expect_a_row_more(backend_->state_slot_bytes(), plain->state_slot_bytes());
  expect_a_row_more(backend_->replay_row_bytes(), plain->replay_row_bytes());
  const int layers = config.count(LayerKind::attention);
  EXPECT_EQ(backend_->page_bytes(), plain->page_bytes() / layers * (layers + 1));
  EXPECT_NE(backend_->arithmetic(), plain->arithmetic());
}

void DraftChecks::expect_not_finite_rows_to_end_drafts_only() {
  TestSession session(*backend_, golden_.config,
                      {.tokens_max = kTokensMax, .rows_max = kTokensMax});
  std::vector<float> broken(static_cast<size_t>(golden_.config.hidden),
                            std::numeric_limits<float>::infinity());
  session.pass({feed(0, 70)});
  session.break_hidden_row(0, broken);
  session.pass({feed(70, 100)});
  EXPECT_TRUE(session.finite(0)) << golden_.name;
  const Drafts after = at_place(session, 100, {});
  for (const int32_t token : after.tokens) EXPECT_GE(token, 0);
  session.break_hidden_row(0, broken);
  const Drafts ended = at_place(session, 100, {});
  EXPECT_EQ(ended.tokens, std::vector<int32_t>(static_cast<size_t>(golden_.drafts->steps), -1));
}

void DraftChecks::report() const {
  std::printf("%s: relative error %.2e, bar %.0e\n", golden_.name.c_str(), error_seen_, error_max_);
}

}  // namespace nibble
