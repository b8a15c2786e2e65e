// The speed of the vision tower as the encoder measures it, on a clock that the tower's work moves.
#include "engine/media_encoder.h"

#include <gtest/gtest.h>

#include "engine/testing/fake_backend.h"

namespace nibble {
namespace {

constexpr int64_t kGranule = 16;  // patches at multiples of which the walk cuts its pieces

/// Encodes one image of 32 * 32 patches. All that is timed here is the first stage of it, in which
/// each patch is the same work.
class MediaEncoderSpeed : public testing::Test {
 protected:
  MediaEncoderSpeed() {
    EXPECT_TRUE(backend_.reserve(kSizes).ok());
    auto image = std::make_shared<MediaPatches>();
    image->grid = {1, 32, 32};
    image->levels.assign(static_cast<size_t>(image->grid.patches() * 3), 7);
    for (auto& channel : image->values) channel.fill(0.5F);
    auto prompt = std::make_unique<Sequence>();
    prompt->phase = Phase::prefill;
    prompt->request.id = 1;
    prompt->request.prompt.assign(300, 5);
    prompt->request.media.push_back(
        {.span = {.begin = 0, .count = 256, .digest = {1, 2}}, .patches = std::move(image)});
    prompt->media_held.assign(1, -1);
    prompt->media_known.assign(1, 0);
    live_.push_back(std::move(prompt));
    encoder_ = std::make_unique<MediaEncoder>(backend_, FakeBackend::config_with_vision(), kSizes,
                                              MediaEncoder::Freed::as_it_is);
    encoder_->prepare(live_);
    EXPECT_TRUE(encoder_->busy());
  }
  /// The granules that the encoder computes for such a budget while each takes `granule_ms`.
  int64_t granules_in(double budget_ms, double granule_ms) {
    const int64_t before = backend_.vision.patches;
    const auto done = [&] {
      return static_cast<double>((backend_.vision.patches - before) / kGranule);
    };
    const auto worked = encoder_->work(budget_ms, [&] { return done() * granule_ms; });
    EXPECT_EQ(worked.ms, done() * granule_ms);
    EXPECT_EQ((backend_.vision.patches - before) % kGranule, 0);
    return (backend_.vision.patches - before) / kGranule;
  }

  static constexpr PoolSizes kSizes = {
      .pages = 8, .state_slots = 2, .rows_max = 512, .media_rows = 256, .vision_rows = 1024};
  FakeBackend backend_;
  std::vector<std::unique_ptr<Sequence>> live_;
  std::unique_ptr<MediaEncoder> encoder_;
};

/// An unknown tower is asked for the least, one that was measured for as much as fits.
TEST_F(MediaEncoderSpeed, TheFirstPartMeasuresTheTower) {
  EXPECT_EQ(granules_in(1.0, 1.0), 1);
  EXPECT_EQ(granules_in(3.5, 1.0), 4);
  EXPECT_EQ(granules_in(8.5, 1.0), 9);
}

/// A quarter of a budget or more that is left is used in the same call.
TEST_F(MediaEncoderSpeed, TheRestOfABudgetIsUsed) {
  EXPECT_EQ(granules_in(5.5, 1.0), 6);  // one that measures, then 4.5 ms
  EXPECT_EQ(granules_in(3.9, 0.5), 7);  // four in 2 ms, three more by 0.85 ms each
}

TEST_F(MediaEncoderSpeed, AQuarterThatIsLeftIsJustEnough) {
  EXPECT_EQ(granules_in(4.0, 3.0), 2);  // the first takes 3 ms
}

/// So long as nothing could be measured each part is the least, and a call has six of them.
TEST_F(MediaEncoderSpeed, AClockThatStandsStillMeasuresNothing) {
  EXPECT_EQ(granules_in(1.0, 0.0), 6);
  EXPECT_EQ(granules_in(1.0, 0.0), 6);
}

/// A measurement counts for three tenths, so one slow part does not make the tower a slow one.
TEST_F(MediaEncoderSpeed, ASpeedThatChangesIsFollowedByThreeTenthsAPart) {
  EXPECT_EQ(granules_in(1.0, 1.0), 1);
  EXPECT_EQ(granules_in(7.5, 2.0), 8);   // by 1 ms each; 1.3 ms from now on
  EXPECT_EQ(granules_in(6.0, 2.0), 5);   // 1.51 ms from now on
  EXPECT_EQ(granules_in(10.0, 2.0), 7);  // 1.657 ms from now on
  EXPECT_EQ(granules_in(8.0, 1.0), 8);   // five in 5 ms, then three by 1.46 ms each
}

}  // namespace
}  // namespace nibble
