// Media through the engine: encoded once, waited for, cancelled, refused.
#include <gtest/gtest.h>

#include "base/slow_constraint.h"
#include "engine/engine_core.h"
#include "engine/testing/fake_backend.h"
#include "engine/testing/simulation_media.h"

namespace nibble {
namespace {

using Tokens = std::vector<int32_t>;

std::shared_ptr<MediaPatches> image(uint8_t seed, MediaGrid grid) {
  auto made = std::make_shared<MediaPatches>();
  made->grid = grid;
  for (int64_t i = 0; i < grid.patches() * 3; ++i)
    made->levels.push_back(static_cast<uint8_t>(seed + i * 7));
  for (auto& channel : made->values)
    for (size_t i = 0; i < channel.size(); ++i) channel[i] = static_cast<float>(i);
  return made;
}

MediaRows at(int32_t begin, uint8_t seed, MediaGrid grid) {
  return {.span = {.begin = begin,
                   .count = static_cast<int32_t>(grid.rows(2)),
                   .digest = {seed, static_cast<uint64_t>(grid.h)}},
          .patches = image(seed, grid)};
}

class MediaEngine : public testing::Test {
 protected:
  static EngineSettings settings() {
    return {.pools = {.pages = 40,
                      .state_slots = 6,
                      .rows_max = 132,
                      .media_rows = 40,
                      .vision_rows = 128},
            .sequences_max = 4,
            .context_max = 1024,
            .integrity = IntegrityChecks::every_step};
  }
  explicit MediaEngine(EngineSettings engine = settings()) : settings_(std::move(engine)) {
    settings_.clock_ms = [this] { return now_ms_ += 100.0; };
    start();
  }
  void start() {
    EXPECT_TRUE(backend_.reserve(settings_.pools).ok());
    core_ = make_core(FakeBackend::config_with_vision());
  }
  std::unique_ptr<EngineCore> make_core(const ModelConfig& config) {
    return std::make_unique<EngineCore>(
        backend_, config,
        Sampler(FakeBackend::kVocab, Sampler::all_sampleable(FakeBackend::kVocab)), settings_);
  }
  SequenceRequest ask(std::vector<MediaRows> media, size_t size = 150) {
    SequenceRequest request;
    request.id = ++ids_;
    for (size_t i = 0; i < size; ++i) request.prompt.push_back(static_cast<int32_t>(i % 60));
    request.max_tokens = 8;
    request.sampling.temperature = 0.0;
    request.cache.boundaries = {64, 128};
    request.media = std::move(media);
    return request;
  }
  /// The model's own answer.
  static Tokens expected(const SequenceRequest& request) {
    const RequestValues values(request);
    FakeBackend::Prefix prefix;
    for (size_t i = 0; i < request.prompt.size(); ++i)
      prefix.add_value(values.prompt(i), Arithmetic::prompt);
    Tokens tokens;
    while (std::ssize(tokens) < request.max_tokens) {
      const auto logits = FakeBackend::logits_of(prefix.hash());
      tokens.push_back(static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin()));
      prefix.add_value(values.generated(tokens.back(), tokens.size() - 1), Arithmetic::generation);
    }
    return tokens;
  }
  void step() {
    for (const EngineEvent& event : core_->step()) {
      if (const auto* fresh = std::get_if<NewTokens>(&event)) {
        Tokens& tokens = tokens_[fresh->id];
        if (tokens.empty()) order_.push_back(fresh->id);
        tokens.insert(tokens.end(), fresh->tokens.begin(), fresh->tokens.end());
      }
      if (const auto* end = std::get_if<Finished>(&event)) ends_[end->id] = *end;
    }
  }
  void run() {
    for (int i = 0; !core_->idle(); ++i) {
      ASSERT_LT(i, 5000) << "somebody waits for ever";
      step();
    }
  }
  /// Answers of all, with what the model says itself.
  template <typename... Requests>
  void expect_answers(Requests... requests) {
    std::map<uint64_t, Tokens> answers;
    const auto submit = [&](SequenceRequest request) {
      const auto admissible = core_->admissible(request);
      ASSERT_TRUE(admissible.ok()) << admissible.error().message;
      answers[request.id] = expected(request);
      core_->submit(std::move(request));
    };
    (submit(std::move(requests)), ...);
    run();
    for (const auto& [id, answer] : answers) EXPECT_EQ(tokens_[id], answer) << id;
  }
  std::string refusal(const SequenceRequest& request) {
    const auto admissible = core_->admissible(request);
    return admissible.ok() ? "" : admissible.error().message;
  }

  EngineSettings settings_;
  FakeBackend backend_;
  std::unique_ptr<EngineCore> core_;
  std::map<uint64_t, Tokens> tokens_;
  std::vector<uint64_t> order_;  // ids in the order of first tokens
  std::map<uint64_t, Finished> ends_;
  uint64_t ids_ = 0;
  double now_ms_ = 0.0;
};

TEST_F(MediaEngine, AnswersAsTheModelDoes) {
  expect_answers(ask({at(3, 1, {1, 4, 6}), at(70, 2, {1, 8, 8}), at(90, 3, {2, 4, 4})}));
  EXPECT_EQ(core_->media_counters().encoded, 3);
  EXPECT_EQ(core_->media_counters().encoded_rows, 6 + 16 + 8);
}

TEST_F(MediaEngine, ARepeatedImageCostsNoCallOfTheTower) {
  expect_answers(ask({at(3, 1, {1, 4, 6}), at(20, 1, {1, 4, 6})}));
  EXPECT_EQ(core_->media_counters().encoded, 1);
  const int64_t patches = backend_.vision.patches;
  EXPECT_EQ(patches, 24);
  expect_answers(ask({at(5, 1, {1, 4, 6})}));  // another prompt
  EXPECT_EQ(backend_.vision.patches, patches);
  EXPECT_EQ(core_->media_counters().found, 2);
  expect_answers(ask({at(5, 1, {1, 4, 6})}));  // the same again: pages of the prefix cache
  EXPECT_EQ(ends_[ids_].cached_tokens, 128);
  EXPECT_EQ(backend_.vision.patches, patches);
}

TEST_F(MediaEngine, AnImageIsEncodedAgainOnceTheCachesAreForgotten) {
  expect_answers(ask({at(3, 1, {1, 4, 6})}));
  core_->forget_caches();
  EXPECT_EQ(core_->media_cache().used(), 0);
  expect_answers(ask({at(3, 1, {1, 4, 6})}));
  EXPECT_EQ(core_->media_counters().encoded, 2);
  EXPECT_EQ(core_->media_counters().evicted, 0);  // nothing lacked room
}

TEST_F(MediaEngine, AnImageThatHadToGoComesBackFromHostMemory) {
  settings_.pools.host_media_rows = 30;
  start();
  expect_answers(ask({at(3, 1, {1, 8, 10})}));                        // 20 rows
  expect_answers(ask({at(3, 2, {1, 8, 12}), at(90, 3, {1, 4, 6})}));  // 24 and 6 of the 40 rows
  EXPECT_EQ(core_->media_counters().evicted, 1);
  const int64_t patches = backend_.vision.patches;
  expect_answers(ask({at(5, 1, {1, 8, 10})}));
  EXPECT_EQ(backend_.vision.patches, patches);
  EXPECT_EQ(core_->media_counters().restored, 1);
  // It is kept there for its tenant alone.
  expect_answers(ask({at(3, 4, {1, 8, 14})}));
  SequenceRequest other = ask({at(5, 1, {1, 8, 10})});
  other.cache.salt = 5;
  expect_answers(std::move(other));
  EXPECT_EQ(core_->media_counters().restored, 1);
  core_->forget_caches();
  expect_answers(ask({at(7, 1, {1, 8, 10})}));
  EXPECT_EQ(core_->media_counters().restored, 1);
}

TEST_F(MediaEngine, PromptsThatDifferInAnImageShareNothingFromItOn) {
  expect_answers(ask({at(70, 1, {1, 4, 6})}));
  expect_answers(ask({at(70, 2, {1, 4, 6})}));
  EXPECT_EQ(ends_[ids_].cached_tokens, 64);
}

TEST_F(MediaEngine, TenantsThatAreKeptApartShareNoImages) {
  expect_answers(ask({at(3, 1, {1, 4, 6})}));
  SequenceRequest other = ask({at(3, 1, {1, 4, 6})});
  other.cache.salt = 5;
  expect_answers(std::move(other));
  EXPECT_EQ(core_->media_counters().encoded, 2);
}

TEST_F(MediaEngine, SequencesThatNeedMoreThanThereIsTakeTurns) {
  const auto big = [&](uint8_t i) {
    return ask({at(2, static_cast<uint8_t>(10 * i + 1), {1, 8, 10}),
                at(40, static_cast<uint8_t>(10 * i + 2), {1, 8, 8}),
                at(80, static_cast<uint8_t>(10 * i + 3), {1, 10, 12})});
  };
  expect_answers(big(0), big(1), big(2), big(3), big(4), big(5));
  EXPECT_GT(core_->media_counters().evicted, 0);
}

TEST_F(MediaEngine, ACancelEndsTheJob) {
  core_->submit(ask({at(3, 1, {1, 8, 8})}));
  while (backend_.vision.patches == 0) step();
  core_->cancel(ids_);
  EXPECT_EQ(core_->media_counters().abandoned, 1);
  EXPECT_EQ(core_->media_cache().used(), 0);
  step();
  EXPECT_EQ(ends_[ids_].reason, FinishReason::cancelled);
}

TEST_F(MediaEngine, NumbersThatAreNotFiniteEndOneRequest) {
  SequenceRequest broken = ask({at(3, 1, {1, 4, 4})});
  auto patches = image(9, {1, 4, 4});
  patches->values[0][patches->levels[0]] = std::numeric_limits<float>::quiet_NaN();
  broken.media[0].patches = patches;
  core_->submit(std::move(broken));
  const uint64_t id = ids_;
  expect_answers(ask({at(3, 2, {1, 4, 4})}));
  EXPECT_EQ(ends_[id].reason, FinishReason::error);
  EXPECT_NE(ends_[id].error.find("vision tower"), std::string::npos);
  EXPECT_EQ(core_->media_counters().encoded, 1);
}

TEST_F(MediaEngine, OthersGoOnWhileAnImageIsEncoded) {
  SequenceRequest text = ask({}, 30);
  text.max_tokens = 60;
  const uint64_t id = text.id;
  core_->submit(std::move(text));
  step();
  core_->submit(ask({at(0, 1, {1, 10, 12})}));
  int64_t said_meanwhile = 0;
  while (core_->media_counters().encoded == 0) {
    const auto before = tokens_[id].size();
    step();
    said_meanwhile += static_cast<int64_t>(tokens_[id].size() - before);
  }
  EXPECT_GE(said_meanwhile, 3);  // a token in every step, and more than one step
  run();
}

TEST_F(MediaEngine, TheSameImageTwiceInABlockTakesItsRowsOnce) {
  const MediaGrid grid = {1, 8, 12};  // 24 rows of 40
  SequenceRequest twice = ask({at(0, 1, grid), at(30, 1, grid)});
  EXPECT_EQ(refusal(twice), "");
  expect_answers(std::move(twice));
  EXPECT_EQ(core_->media_counters().encoded, 1);
  EXPECT_NE(refusal(ask({at(0, 1, grid), at(30, 2, grid)})).find("found 48"), std::string::npos);
}

/// Its masks are not there after the first token.
class Stuck final : public SlowConstraint {
 public:
  Next next(std::span<const int32_t>) override { return stuck_ ? Next::making : Next::ready; }
  Drafts drafts() const override { return Drafts::alone; }
  MaskState mask(std::span<const int32_t>, std::span<uint32_t>) override { return MaskState::open; }
  std::optional<size_t> accept(std::span<const int32_t>) override {
    stuck_ = true;
    return std::nullopt;
  }
  void rollback(size_t) override {}

 private:
  bool stuck_ = false;
};

/// Each part of the tower's work takes 100 ms here: one is more than a step of decoding has, two
/// fit a step without.
TEST_F(MediaEngine, OneThatSatOutThePassDoesNotWaitLongerForTheTower) {
  const auto longest = [&] {
    double most = 0.0;
    for (int i = 0; i < 100 && core_->media_counters().encoded == 0; ++i) {
      const double before = core_->media_counters().encode_ms;
      step();
      most = std::max(most, core_->media_counters().encode_ms - before);
    }
    core_->cancel_all();
    return most;
  };
  core_->submit(ask({at(0, 1, {1, 10, 12})}));
  EXPECT_GT(longest(), 100.0);
  start();
  SequenceRequest text = ask({}, 30);
  text.constraint = std::make_unique<Stuck>();
  core_->submit(std::move(text));
  for (int i = 0; i < 3; ++i) step();
  EXPECT_EQ(core_->count_phases()[static_cast<size_t>(Phase::decode)], 1);
  core_->submit(ask({at(0, 1, {1, 10, 12})}));
  EXPECT_EQ(longest(), 100.0);
}

TEST_F(MediaEngine, TheMoreUrgentIsEncodedFirst) {
  SequenceRequest early = ask({at(0, 1, {1, 10, 12})});
  SequenceRequest urgent = ask({at(0, 2, {1, 10, 12})});
  urgent.urgency.priority = -1;
  const uint64_t first = urgent.id;
  core_->submit(std::move(early));
  core_->submit(std::move(urgent));
  run();
  EXPECT_EQ(order_.front(), first);
}

/// Two tenants with long texts: the one whose image is encoded meanwhile comes second.
TEST_F(MediaEngine, TheTowersTimeIsThatOfItsTenant) {
  for (const uint64_t with_image : {1, 2}) {
    const auto submit = [&](uint64_t tenant, SequenceRequest request) {
      request.urgency.tenant = tenant;
      request.prompt[0] = static_cast<int32_t>(request.id);  // nobody has its pages
      core_->submit(std::move(request));
    };
    std::map<uint64_t, uint64_t> tenants;
    for (const uint64_t tenant : {1, 2}) {
      submit(tenant, ask({}, 700));
      tenants[ids_] = tenant;
    }
    submit(with_image, ask({at(3, static_cast<uint8_t>(with_image), {1, 10, 12})}));
    order_.clear();
    run();
    const auto first = std::ranges::find_if(order_, [&](uint64_t id) { return tenants[id] > 0; });
    EXPECT_EQ(tenants[*first], 3 - with_image);
  }
}

TEST_F(MediaEngine, RefusesWhatCanNeverBeHeld) {
  EXPECT_EQ(refusal(ask({at(0, 1, {1, 8, 16})})), "");
  EXPECT_NE(refusal(ask({at(0, 1, {1, 10, 14})})).find("at most 128 patches, found 140"),
            std::string::npos);
  // Two that the same block of 64 rows reads.
  EXPECT_NE(refusal(ask({at(0, 1, {1, 8, 12}), at(30, 2, {1, 8, 10})})).find("found 44"),
            std::string::npos);
  EXPECT_EQ(refusal(ask({at(0, 1, {1, 8, 12}), at(70, 2, {1, 8, 10})})), "");
  auto wrong = ask({at(0, 1, {1, 4, 4})});
  wrong.media[0].span.count = 5;
  EXPECT_NE(refusal(wrong).find("placeholder tokens of media: expected 4"), std::string::npos);
}

TEST_F(MediaEngine, RefusesMediaWithoutATower) {
  const std::string none = "media: expected a model with its vision tower loaded, found none";
  core_ = make_core(FakeBackend::config());
  EXPECT_EQ(refusal(ask({at(0, 1, {1, 4, 4})})), none);
  settings_.pools.vision_rows = 0;
  settings_.pools.media_rows = 0;
  start();
  EXPECT_FALSE(backend_.has_vision());
  EXPECT_EQ(refusal(ask({at(0, 1, {1, 4, 4})})), none);
  settings_.pools.media_rows = 40;  // that the backend has not
  core_ = make_core(FakeBackend::config_with_vision());
  EXPECT_EQ(refusal(ask({at(0, 1, {1, 4, 4})})), none);
  EXPECT_EQ(refusal(ask({})), "");
}

TEST_F(MediaEngine, RefusesWhatDoesNotFitThePrompt) {
  const auto refused = [&](const std::function<void(SequenceRequest&)>& change) {
    SequenceRequest request = ask({at(30, 1, {1, 8, 12})}, 100);
    for (int32_t i = 0; i < 100; ++i) request.positions.push_back({i, i, i});
    change(request);
    return refusal(request);
  };
  EXPECT_EQ(refused([](auto&) {}), "");
  EXPECT_NE(refused([](auto& r) { r.media[0].span.begin = 77; }), "");
  EXPECT_NE(refused([](auto& r) { r.media[0].span.begin = -1; }), "");
  EXPECT_NE(refused([](auto& r) { r.media.push_back(r.media[0]); }), "");
  EXPECT_NE(refused([](auto& r) { r.media[0].patches = nullptr; }), "");
  EXPECT_NE(refused([](auto& r) { r.positions.pop_back(); }), "");
  EXPECT_NE(refused([](auto& r) { r.positions[3][1] = 100; }), "");
}

class DraftingMediaEngine : public MediaEngine {
 protected:
  static EngineSettings drafting() {
    EngineSettings engine = settings();
    engine.pools.replay_rows = 5;
    engine.drafter = std::make_shared<NgramDrafter>(NgramDrafter::Options{});
    return engine;
  }
  DraftingMediaEngine() : MediaEngine(drafting()) {}
};

TEST_F(DraftingMediaEngine, RowsMayHavePositionsOfTheirOwn) {
  const auto with_positions = [&](uint8_t seed) {  // positions of another grid
    SequenceRequest request = ask({at(30, seed, {1, 8, 12})}, 100);
    for (int32_t i = 0; i < 100; ++i) {
      const int32_t p = i < 30 ? i : i - 54 + 38;
      request.positions.push_back(i >= 30 && i < 54
                                      ? std::array<int32_t, 3>{30, 30 + (i - 30) / 8, 30 + i % 8}
                                      : std::array<int32_t, 3>{p, p, p});
    }
    return request;
  };
  expect_answers(with_positions(1));
  expect_answers(with_positions(2));
  EXPECT_EQ(ends_[ids_].cached_tokens, 0);
  expect_answers(with_positions(1));
  EXPECT_EQ(ends_[ids_].cached_tokens, 64);
}

}  // namespace
}  // namespace nibble
