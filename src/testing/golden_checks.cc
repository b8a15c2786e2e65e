// Prefill, mixing, snapshots, greedy, divergence.
#include "testing/golden_checks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace nibble {
namespace {

constexpr int kTokensMax = 256;
constexpr double kMeanKlMax = 1e-3;
constexpr double kNearTie = 1e-3;  // of the logits' standard deviation

double standard_deviation(std::span<const float> values) {
  double sum = 0.0;
  double squares = 0.0;
  for (const float value : values) {
    sum += value;
    squares += double{value} * value;
  }
  const auto count = static_cast<double>(values.size());
  return std::sqrt(squares / count - sum / count * (sum / count));
}

std::vector<double> log_softmax(std::span<const float> logits) {
  const double highest = *std::max_element(logits.begin(), logits.end());
  double total = 0.0;
  for (const float logit : logits) total += std::exp(logit - highest);
  std::vector<double> out;
  for (const float logit : logits) out.push_back(logit - highest - std::log(total));
  return out;
}

double kl(std::span<const float> expected, std::span<const float> found) {
  const auto p = log_softmax(expected);
  const auto q = log_softmax(found);
  double sum = 0.0;
  for (size_t i = 0; i < p.size(); ++i) sum += std::exp(p[i]) * (p[i] - q[i]);
  return sum;
}

}  // namespace

GoldenChecks::GoldenChecks(const std::string& name, const BackendFactory& factory,
                           const BackendOptions& options, double logit_error_max)
    : golden_(load_golden(name)), logit_error_max_(logit_error_max) {
  backend_ = factory(golden_.weights, golden_.config, options).value();
}

TestSession GoldenChecks::session(int sequences) {
  return TestSession(*backend_, golden_.config,
                     {.sequences = sequences, .tokens_max = kTokensMax, .rows_max = kTokensMax});
}

void GoldenChecks::expect_logits(std::span<const float> found, size_t sequence, size_t first_row) {
  const auto vocab = static_cast<size_t>(golden_.config.vocab_rows);
  const auto expected =
      std::span(golden_.sequences[sequence].logits).subspan(first_row * vocab, found.size());
  const double error = relative_error(found, expected);
  error_seen_ = std::max(error_seen_, error);
  EXPECT_LE(error, logit_error_max_) << golden_.name << ", sequence " << sequence << ", rows "
                                     << first_row << ".." << first_row + found.size() / vocab;
}

std::vector<float> logits_in_pieces(TestSession& session, const GoldenSequence& golden,
                                    size_t piece, TestSession::Feed feed) {
  std::vector<float> logits;
  for (size_t at = 0; at < golden.ids.size(); at += piece) {
    const size_t count = std::min(piece, golden.ids.size() - at);
    feed.tokens = std::span(golden.ids).subspan(at, count);
    feed.positions = std::span(golden.positions).subspan(at, count);
    const auto rows = session.pass({feed});
    logits.insert(logits.end(), rows.begin(), rows.end());
  }
  return logits;
}

std::vector<float> GoldenChecks::prefill(TestSession& session, size_t sequence, int piece) {
  const GoldenSequence& golden = golden_.sequences[sequence];
  return logits_in_pieces(session, golden,
                          piece == 0 ? golden.ids.size() : static_cast<size_t>(piece),
                          {.sequence = static_cast<int>(sequence)});
}

void GoldenChecks::expect_prefill(int piece) {
  TestSession alone = session(static_cast<int>(golden_.sequences.size()));
  for (size_t i = 0; i < golden_.sequences.size(); ++i)
    expect_logits(prefill(alone, i, piece), i, 0);
}

void GoldenChecks::expect_prefill_with_kv(KvCache kind, int piece) {
  constexpr double kErrorMax = 3e-3;
  TestSession alone = session(static_cast<int>(golden_.sequences.size()));
  for (size_t i = 0; i < golden_.sequences.size(); ++i) {
    const GoldenSequence& golden = golden_.sequences[i];
    const auto kept = golden.logits_kv.find(kind);
    if (kept == golden.logits_kv.end()) continue;
    const double error = relative_error(prefill(alone, i, piece), kept->second);
    EXPECT_LE(error, kErrorMax) << golden_.name << ", sequence " << i;
    EXPECT_GT(relative_error(golden.logits, kept->second), 2 * kErrorMax) << golden_.name;
    error_seen_ = std::max(error_seen_, error);
  }
}

std::vector<std::vector<float>> GoldenChecks::mixed_logits() {
  const auto vocab = static_cast<size_t>(golden_.config.vocab_rows);
  const size_t count = golden_.sequences.size();
  TestSession mixed = session(static_cast<int>(count));
  std::vector<std::vector<float>> logits(count);
  for (size_t round = 0;; ++round) {
    std::vector<TestSession::Feed> feeds;
    for (size_t i = 0; i < count; ++i) {
      const size_t s = round % 2 == 0 ? count - 1 - i : i;  // the order in the batch changes too
      const auto& golden = golden_.sequences[s];
      const auto at = static_cast<size_t>(mixed.tokens(static_cast<int>(s)));
      const size_t rows = std::min(golden.ids.size() - at, 1 + (round * 5 + s * 3) % 17);
      if (rows == 0) continue;
      feeds.push_back({.sequence = static_cast<int>(s),
                       .tokens = std::span(golden.ids).subspan(at, rows),
                       .positions = std::span(golden.positions).subspan(at, rows)});
    }
    if (feeds.empty()) return logits;
    const auto found = mixed.pass(feeds);
    auto begin = found.begin();
    for (const auto& feed : feeds) {
      const auto end = begin + static_cast<ptrdiff_t>(feed.tokens.size() * vocab);
      auto& sequence = logits[static_cast<size_t>(feed.sequence)];
      sequence.insert(sequence.end(), begin, end);
      begin = end;
    }
  }
}

void GoldenChecks::expect_mixed_batch() {
  const auto logits = mixed_logits();
  for (size_t i = 0; i < logits.size(); ++i) expect_logits(logits[i], i, 0);
}

void GoldenChecks::expect_same_bits() {
  const auto mixed = mixed_logits();
  for (size_t i = 0; i < golden_.sequences.size(); ++i) {
    TestSession whole_session = session(static_cast<int>(golden_.sequences.size()));
    const auto whole = prefill(whole_session, i, 0);
    EXPECT_TRUE(mixed[i] == whole) << golden_.name << ": mixing changes bits of sequence " << i;
    for (const int piece : {1, 7, 64}) {
      TestSession pieces = session(static_cast<int>(golden_.sequences.size()));
      EXPECT_TRUE(prefill(pieces, i, piece) == whole)
          << golden_.name << ": pieces of " << piece << " change bits of sequence " << i;
    }
  }
}

void GoldenChecks::expect_snapshots() {
  const auto vocab = static_cast<size_t>(golden_.config.vocab_rows);
  const auto& golden = golden_.sequences[0];
  const auto feed = [&](size_t at, size_t count, int snapshot_after) {
    return TestSession::Feed{.tokens = std::span(golden.ids).subspan(at, count),
                             .positions = std::span(golden.positions).subspan(at, count),
                             .snapshot_after = snapshot_after};
  };
  for (const size_t kept : {size_t{1}, size_t{37}, size_t{64}}) {
    TestSession rewound = session(1);
    const auto first = rewound.pass({feed(0, 70, static_cast<int>(kept) - 1)});
    expect_logits(first, 0, 0);
    expect_logits(rewound.pass({feed(70, 9, -1)}), 0, 70);
    rewound.restore(0);
    const auto again = rewound.pass({feed(kept, 70 - kept, -1)});
    expect_logits(again, 0, kept);
    const auto before = std::span(first).subspan(kept * vocab);
    EXPECT_LE(relative_error(again, before), 1e-5) << golden_.name << " kept after " << kept;
  }
}

void GoldenChecks::expect_drafts() {
  constexpr int kDrafted = 4;
  const auto vocab = static_cast<size_t>(golden_.config.vocab_rows);
  const auto& golden = golden_.sequences[0];
  const auto feed = [&](std::span<const int32_t> ids, size_t at) {
    return TestSession::Feed{.tokens = ids,
                             .positions = std::span(golden.positions).subspan(at, ids.size()),
                             .arithmetic = Arithmetic::generation};
  };
  const SessionLimits limits{
      .sequences = 1, .tokens_max = kTokensMax, .rows_max = kTokensMax, .replay_rows = kDrafted};
  const size_t prompt = golden.ids.size() / 2;
  const auto ids = std::span(golden.ids);
  std::vector<float> one_by_one;
  TestSession plain(*backend_, golden_.config, limits);
  plain.pass(
      {{.tokens = ids.first(prompt), .positions = std::span(golden.positions).first(prompt)}});
  for (size_t at = prompt; at < ids.size(); ++at) {
    const auto row = plain.pass({feed(ids.subspan(at, 1), at)});
    one_by_one.insert(one_by_one.end(), row.begin(), row.end());
  }
  TestSession drafting(*backend_, golden_.config, limits);
  drafting.pass(
      {{.tokens = ids.first(prompt), .positions = std::span(golden.positions).first(prompt)}});
  size_t at = prompt;
  for (size_t round = 0; at < ids.size(); ++round) {
    const size_t count = std::min<size_t>(kDrafted, ids.size() - at);
    const size_t accepted = 1 + round * 7 % count;  // the first row is no draft
    std::vector<int32_t> rows(ids.begin() + static_cast<ptrdiff_t>(at),
                              ids.begin() + static_cast<ptrdiff_t>(at + count));
    for (size_t i = accepted; i < count; ++i)
      rows[i] = (rows[i] + 1) % static_cast<int32_t>(golden_.config.vocab_rows);
    TestSession::Feed draft = feed(rows, at);
    draft.write = round % 4 == 3 ? StateWrite::rows : StateWrite::replayed;
    if (draft.write == StateWrite::rows) draft.tokens = draft.tokens.first(1);
    const auto logits = drafting.pass({draft});
    const size_t kept = draft.write == StateWrite::rows ? 1 : accepted;
    const auto expected = std::span(one_by_one).subspan((at - prompt) * vocab, kept * vocab);
    EXPECT_TRUE(std::ranges::equal(std::span(logits).first(kept * vocab), expected))
        << golden_.name << ": drafts change the bits of tokens " << at << ".." << at + kept;
    if (draft.write == StateWrite::replayed) drafting.accept(0, static_cast<int>(kept));
    at += kept;
  }
  expect_logits(one_by_one, 0, prompt);
}

void GoldenChecks::expect_greedy() {
  if (golden_.greedy.empty()) return;
  ASSERT_GE(golden_.greedy.size(), 32U);
  const auto vocab = static_cast<size_t>(golden_.config.vocab_rows);
  TestSession growing = session(1);
  const auto& prompt = golden_.sequences[0].ids;
  std::vector<float> logits = growing.pass({{.tokens = prompt}});
  logits.erase(logits.begin(), logits.end() - static_cast<ptrdiff_t>(vocab));
  for (size_t i = 0; i < golden_.greedy.size(); ++i) {
    const auto best = std::max_element(logits.begin(), logits.end());
    const auto expected = static_cast<size_t>(golden_.greedy[i]);
    const auto found = static_cast<size_t>(best - logits.begin());
    if (found != expected) {
      const double gap = (*best - logits[expected]) / standard_deviation(logits);
      EXPECT_LT(gap, kNearTie) << golden_.name << ": token " << i << " is " << found << ", not "
                               << expected;
      std::printf("%s: near-tie at token %zu, gap %.2e of the deviation\n", golden_.name.c_str(), i,
                  gap);
      return;
    }
    const int32_t token = golden_.greedy[i];
    logits = growing.pass({{.tokens = {&token, 1}, .arithmetic = Arithmetic::generation}});
  }
}

void GoldenChecks::report() const {
  std::printf("%s: relative error %.2e, bar %.0e\n", golden_.name.c_str(), error_seen_,
              logit_error_max_);
}

void GoldenChecks::expect_divergence(Distributions distributions) {
  const bool declared = distributions == Distributions::declared;
  const auto vocab = static_cast<size_t>(golden_.config.vocab_rows);
  TestSession alone = session(static_cast<int>(golden_.sequences.size()));
  double sum = 0.0;
  double rows = 0.0;
  double error = 0.0;
  for (size_t i = 0; i < golden_.sequences.size(); ++i) {
    const auto found = prefill(alone, i, 0);
    const GoldenSequence& golden = golden_.sequences[i];
    const auto& expected = declared ? golden.logits : golden.logits_high;
    error = std::max(error, relative_error(found, expected));
    for (size_t at = 0; at < found.size(); at += vocab, ++rows)
      sum += kl(std::span(expected).subspan(at, vocab), std::span(found).subspan(at, vocab));
  }
  EXPECT_LE(sum / rows, kMeanKlMax) << golden_.name;
  std::printf("%s, %s: mean KL %.2e, relative error %.2e\n", golden_.name.c_str(),
              declared ? "declared" : "weights only", sum / rows, error);
}

std::string golden_test_name(const std::string& name) {
  std::string out = name.substr(name.rfind('/') + 1);
  std::replace(out.begin(), out.end(), '-', '_');
  return out;
}

}  // namespace nibble
