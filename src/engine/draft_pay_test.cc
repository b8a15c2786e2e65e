// Drafts of the model in time that a table gives: where all are wrong they cost hardly anything,
// since steps in which nobody drafts overlap as they do without a layer that drafts; where most are
// right they save what they can, and a text that changes is noticed.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/engine_core.h"
#include "engine/testing/fake_backend.h"

namespace nibble {
namespace {

/// Milliseconds of a pass by its sequences and drafted rows, of a step of drafts for all, and of
/// the host between two passes, during which a card computes if it may.
struct Times {
  const char* name;
  int32_t sequences;
  double pass, row, step, host;
};

/// The figures of an H100 are those of docs/kernels/decode-reached.md (35B, `mixed`); the others
/// stand for a dense model, whose rows are nearly free, and for a mixture of experts on a CPU.
constexpr Times kTimes[] = {
    {"H100, 1", 1, 1.587, 0.486, 0.228, 0.06},   {"H100, 8", 8, 3.9, 0.18, 0.358, 0.08},
    {"H100, 32", 32, 8.851, 0.0905, 0.651, 0.2}, {"H100, 64", 64, 13.0, 0.0857, 0.929, 0.3},
    {"dense, 1", 1, 10.0, 0.2, 0.3, 0.06},       {"dense, 8", 8, 10.4, 0.2, 0.3, 0.08},
    {"CPU, 1", 1, 400.0, 300.0, 20.0, 0.0}};
constexpr int32_t kTokens = 512;

/// The engine with a clock that the host moves, and that waits for passes and drafts.
class Timed {
 public:
  Timed(const Times& times, int32_t drafts, std::vector<double> acceptance)
      : times_(times), backend_({.chooses = true, .overlaps = true, .drafts = 0}), core_([&] {
          EngineSettings settings{.pools = {.pages = times.sequences * 16,
                                            .state_slots = times.sequences * 2,
                                            .rows_max = 1024,
                                            .replay_rows = drafts + 1},
                                  .sequences_max = times.sequences,
                                  .context_max = 1024,
                                  .cache = CacheMode::off,
                                  .drafter = nullptr,
                                  .model_drafts = drafts,
                                  .synthetic_acceptance = std::move(acceptance),
                                  .clock_ms = [this] { return now_ms_; }};
          if (drafts == 0) settings.pools.replay_rows = 0;
          settings.repeat_match = 0;
          EXPECT_TRUE(backend_.reserve(settings.pools).ok());
          constexpr int32_t kVocab = FakeBackend::kVocab;
          return EngineCore(backend_, FakeBackend::config(),
                            Sampler(kVocab, Sampler::all_sampleable(kVocab)), settings);
        }()) {
    backend_.on_pass = [this](int) {
      const auto rows = static_cast<double>(backend_.rows_computed - rows_);
      rows_ = backend_.rows_computed;
      device_ms_ = std::max(device_ms_, now_ms_) + times_.pass +
                   times_.row * (rows - backend_.sequences_last);
      pass_ends_ms_.push_back(device_ms_);
    };
    backend_.on_wait = [this](int pass) {
      now_ms_ = std::max(now_ms_, pass_ends_ms_.at(static_cast<size_t>(pass) - 1));
    };
    backend_.on_draft = [this](int steps) {
      device_ms_ = now_ms_ = std::max(device_ms_, now_ms_) + times_.step * steps;
    };
  }

  /// Milliseconds for each token of a sequence, over as many tokens as each of them says; who ends
  /// is followed by another.
  double ms_per_token(int32_t tokens = kTokens) {
    for (; submitted_ < times_.sequences; ++submitted_) submit(tokens);
    const double begin_ms = now_ms_;
    int64_t left = int64_t{tokens} * times_.sequences;
    const auto said = static_cast<double>(left);
    while (left > 0) {
      if (on_step) on_step();
      now_ms_ += times_.host;
      for (const EngineEvent& event : core_.step()) {
        if (const auto* fresh = std::get_if<NewTokens>(&event)) left -= std::ssize(fresh->tokens);
        if (std::holds_alternative<Finished>(event)) submit(tokens), ++submitted_;
      }
    }
    return (now_ms_ - begin_ms) / (said - static_cast<double>(left)) * times_.sequences;
  }

  const EngineCounters& counters() const { return core_.counters(); }
  FakeBackend& backend() { return backend_; }
  std::function<void()> on_step;

 private:
  void submit(int32_t tokens) {
    SequenceRequest request;
    request.id = static_cast<uint64_t>(submitted_) + 1;
    request.prompt = {submitted_ % FakeBackend::kVocab, 3, submitted_ / FakeBackend::kVocab, 5};
    request.max_tokens = tokens;
    request.sampling.temperature = 0.0;
    core_.submit(std::move(request));
  }

  Times times_;
  double now_ms_ = 1.0;
  double device_ms_ = 0.0;            // what it was given to do ends then
  std::vector<double> pass_ends_ms_;  // by their numbers
  int64_t rows_ = 0;
  int32_t submitted_ = 0;
  FakeBackend backend_;
  EngineCore core_;
};

/// The first answers find out what drafts cost; those after begin with what all have learned. A CPU
/// begins with a guess of its pass that is 90 times too low.
TEST(DraftsPay, WhereAllAreWrongTheyTakeTwoInAHundredAtMost) {
  for (const Times& times : kTimes) {
    SCOPED_TRACE(times.name);
    const double plain = Timed(times, 0, {}).ms_per_token();
    Timed drafting(times, 3, {0.0, 0.0, 0.0});
    for (int round = 0; round < 4; ++round) {
      const double ratio = drafting.ms_per_token() / plain;
      EXPECT_LE(ratio, round > 0 ? 1.01 : times.pass < 100.0 ? 1.02 : 1.025) << round;
    }
    EXPECT_EQ(drafting.counters().drafts_right, 0);
    EXPECT_GT(drafting.counters().drafted, 10 * times.sequences);  // it is tried again
  }
}

/// A trial ends the overlap for its round: it, and the pass after it, begin when the tokens before
/// are read. All other passes begin before.
TEST(DraftsPay, PassesOverlapWhereNobodyDrafts) {
  for (const Times& times : kTimes) {
    SCOPED_TRACE(times.name);
    Timed plain(times, 0, {});
    plain.ms_per_token();
    const int64_t in_order = plain.counters().passes - plain.counters().passes_ahead;
    Timed drafting(times, 3, {0.0, 0.0, 0.0});
    drafting.ms_per_token();
    const EngineCounters& counters = drafting.counters();
    EXPECT_GT(counters.passes_ahead, 0.85 * static_cast<double>(counters.passes));
    EXPECT_LE(counters.passes - counters.passes_ahead, in_order + 2 * counters.draft_rounds);
  }
}

/// There is nothing to weigh a draft against before it is known what a pass takes, so that no trial
/// is made either.
TEST(DraftsPay, TheFirstPassesDraftNothing) {
  for (const Times& times : kTimes) {
    SCOPED_TRACE(times.name);
    Timed drafting(times, 3, {0.93, 0.81, 0.70});
    drafting.ms_per_token(3);
    EXPECT_EQ(drafting.counters().drafted, 0);
    drafting.ms_per_token(60);
    EXPECT_GT(drafting.counters().drafted, 0);
  }
}

/// At the acceptance that is published of the 35B's layer.
TEST(DraftsPay, WhereMostAreRightTheySaveWhatTheyCan) {
  constexpr double kGains[] = {1.38, 1.33, 1.5, 1.25, 2.6, 2.0, 1.0};
  for (size_t i = 0; i < std::size(kTimes); ++i) {
    SCOPED_TRACE(kTimes[i].name);
    const double plain = Timed(kTimes[i], 0, {}).ms_per_token();
    Timed drafting(kTimes[i], 3, {0.93, 0.81, 0.70});
    for (int round = 0; round < 4; ++round) {
      const double gain = plain / drafting.ms_per_token();
      EXPECT_GE(gain, kGains[i]) << round;
    }
  }
}

/// Half of the first drafts are right: trying them may cost no more than the noise of their odds.
TEST(DraftsPay, WhereItIsUndecidedLittleIsLost) {
  for (const Times& times : kTimes) {
    SCOPED_TRACE(times.name);
    const double plain = Timed(times, 0, {}).ms_per_token();
    Timed drafting(times, 3, {0.5, 0.3, 0.15});
    double ratio = 0.0;
    for (int round = 0; round < 4; ++round) ratio += drafting.ms_per_token() / plain / 4;
    EXPECT_LE(ratio, 1.05);
  }
}

/// A text that the layer could not draft becomes one that it can.
TEST(DraftsPay, AreFoundAgain) {
  const double plain = Timed(kTimes[0], 0, {}).ms_per_token(900);
  Timed drafting(kTimes[0], 3, {});
  drafting.backend().drafts_wrong = true;
  drafting.on_step = [&] {
    if (drafting.counters().passes > 300) drafting.backend().drafts_wrong = false;
  };
  EXPECT_LT(drafting.ms_per_token(900), 0.85 * plain);
  EXPECT_GT(drafting.counters().drafts_right, 300);
}

}  // namespace
}  // namespace nibble
