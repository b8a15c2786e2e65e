// Media from their seeds, frames through the tower, prompts through the model.
#include "testing/vision_checks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/file.h"
#include "model/forward.h"
#include "testing/source_dir.h"

namespace nibble {
namespace {

constexpr uint64_t kGoldenBytesMax = 8U << 20;
constexpr int32_t kMediaRows = 256;
constexpr int kTokensMax = 256;
constexpr int32_t kDrafted = 2;

std::filesystem::path golden_folder(const std::string& name) {
  return std::filesystem::path(NIBBLE_SOURCE_DIR) / "tests/golden/vision" / name;
}

std::vector<float> read_floats(const std::filesystem::path& path) {
  const std::string raw = read_text_file(path, kGoldenBytesMax).value();
  std::vector<float> values(raw.size() / sizeof(float));
  std::memcpy(values.data(), raw.data(), raw.size());
  return values;
}

/// This computes what levels() of vision_golden.py computes.
uint8_t level(uint64_t seed, uint64_t place) {
  uint64_t x = (seed << 32) + place + 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return static_cast<uint8_t>((x ^ (x >> 31)) >> 56);
}

}  // namespace

VisionChecks::VisionChecks(const std::string& name, const BackendFactory& factory,
                           const BackendOptions& options, double error_max, Drafting drafting)
    : options_(options), error_max_(error_max) {
  const auto model = name == "pebble"
                         ? std::filesystem::path(NIBBLE_SOURCE_DIR) / "pebble" / "model"
                         : golden_folder(name);
  checkpoint_ = std::make_unique<Checkpoint>(Checkpoint::open(model).value());
  config_ = ModelConfig::parse(checkpoint_->config()).value();
  config_.vision =
      VisionConfig::parse(checkpoint_->config(), config_.hidden, config_.vocab_rows).value();
  if (drafting == Drafting::on) config_.draft_layers = 1;
  weights_ = Weights::bind(*checkpoint_, config_).value();
  backend_ = factory(weights_, config_, options).value();
  rows_ = read_floats(golden_folder(name) / "rows.f32");
  const std::string text =
      read_text_file(golden_folder(name) / "expected.json", kGoldenBytesMax).value();
  const std::vector<float> logits = read_floats(golden_folder(name) / "logits.f32");
  const Json expected = parse_json(text, "expected.json").value();
  auto next = logits.begin();
  for (const Json& prompt : expected.as_array()) {
    read_prompt(prompt);
    const int64_t count = prompt.find("logit_rows")->as_int() * config_.vocab_rows;
    prompts_.back().logits.assign(next, next + count);
    next += count;
  }
  CHECK(next == logits.end(), "logits of ", logits.size());
}

VisionChecks::Medium& VisionChecks::add_medium(const Json& json) {
  const VisionConfig& vision = *config_.vision;
  auto medium = std::make_unique<Medium>();
  const auto& grid = json.find("grid")->as_array();
  const auto edge = [&](size_t axis) { return static_cast<int32_t>(grid[axis].as_int()); };
  medium->patches.grid = {edge(0), edge(1), edge(2)};
  const auto seed = static_cast<uint64_t>(json.find("seed")->as_int());
  const int64_t count = medium->patches.grid.patches() * vision.patch_values();
  for (int64_t i = 0; i < count; ++i)
    medium->patches.levels.push_back(level(seed, static_cast<uint64_t>(i)));
  for (auto& channel : medium->patches.values)
    for (size_t i = 0; i < channel.size(); ++i) channel[i] = static_cast<float>(i) / 127.5F - 1.0F;
  const MediaGrid& g = medium->patches.grid;
  EXPECT_TRUE(
      check_patches(medium->patches, vision, static_cast<int32_t>(g.rows(vision.merge))).ok());
  for (int32_t t = 0; t < g.t; ++t) {
    std::vector<int32_t> places;
    for (int64_t row = 0; row < g.frame_patches() / vision.merged_patches(); ++row)
      places.push_back(rows_used_++ * 37 % kMediaRows);  // scattered
    medium->places.push_back(std::move(places));
  }
  CHECK(rows_used_ <= kMediaRows, "media rows ", rows_used_);
  media_.push_back(std::move(medium));
  return *media_.back();
}

void VisionChecks::read_prompt(const Json& json) {
  const VisionConfig& vision = *config_.vision;
  VisionPrompt prompt;
  for (const Json& id : json.find("ids")->as_array())
    prompt.ids.push_back(static_cast<int32_t>(id.as_int()));
  prompt.places.assign(prompt.ids.size(), -1);
  std::vector<PlacedGrid> grids;
  auto at = prompt.ids.begin();
  for (const Json& one : json.find("media")->as_array()) {
    const Medium& medium = add_medium(one);
    const int32_t id =
        one.find("kind")->as_string() == "image" ? vision.image_token : vision.video_token;
    for (const auto& places : medium.places) {
      at = std::find(at, prompt.ids.end(), id);
      const auto begin = at - prompt.ids.begin();
      grids.push_back({.begin = static_cast<int32_t>(begin),
                       .grid = {1, medium.patches.grid.h, medium.patches.grid.w}});
      std::ranges::copy(places, prompt.places.begin() + begin);
      at += std::ssize(places);
    }
  }
  prompt.positions = media_positions(static_cast<int32_t>(prompt.ids.size()), grids, vision.merge);
  prompts_.push_back(std::move(prompt));
}

std::vector<VisionFrame> VisionChecks::frames() const {
  std::vector<VisionFrame> frames;
  for (const auto& medium : media_)
    for (size_t t = 0; t < medium->places.size(); ++t)
      frames.push_back(
          {.media = &medium->patches, .t = static_cast<int32_t>(t), .places = medium->places[t]});
  return frames;
}

int64_t VisionChecks::largest_frame() const {
  int64_t rows = 0;
  for (const VisionFrame& frame : frames()) rows = std::max(rows, frame.rows());
  return rows;
}

int64_t VisionChecks::all_frames() const {
  int64_t rows = 0;
  for (const VisionFrame& frame : frames()) rows += frame.rows();
  return rows;
}

TestSession VisionChecks::session(Backend& backend, int64_t vision_rows) const {
  return TestSession(backend, config_,
                     {.sequences = static_cast<int>(prompts_.size()),
                      .tokens_max = kTokensMax,
                      .rows_max = kTokensMax,
                      .media_rows = kMediaRows,
                      .vision_rows = vision_rows});
}

/// Reads media rows as a pass sees them: the residual stream after embed().
std::vector<float> VisionChecks::read_rows(Backend& backend) const {
  Batch batch;
  for (const auto& medium : media_)
    for (const auto& places : medium->places)
      for (const int32_t place : places) {
        batch.embeddings.push_back({.row = batch.rows(), .place = place});
        batch.tokens.push_back(0);
      }
  batch.positions.assign(3 * batch.tokens.size(), 0);
  batch.sequences = {{.row_count = batch.rows(), .arithmetic = Arithmetic::generation}};
  const Residual h = backend.embed(batch);
  std::vector<float> rows(batch.tokens.size() * static_cast<size_t>(config_.hidden));
  backend.read_residual(h, rows);
  return rows;
}

std::vector<float> VisionChecks::encode(Backend& backend, const std::vector<VisionFrame>& frames,
                                        double work, int64_t vision_rows) const {
  VisionWalk walk(*config_.vision, frames, vision_rows);
  double total = 0.0;
  const double expected = walk.left();
  while (!walk.done()) total += walk.advance(backend, work);
  EXPECT_NEAR(total / expected, 1.0, 1e-9);
  EXPECT_EQ(walk.left(), 0.0);
  for (const VisionFrame& frame : frames) EXPECT_TRUE(backend.finite_media(frame.places));
  return read_rows(backend);
}

void VisionChecks::expect_near(std::span<const float> found, std::span<const float> expected,
                               const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  const double error = relative_error(found, expected);
  error_seen_ = std::max(error_seen_, error);
  EXPECT_LE(error, error_max_) << what;
}

void VisionChecks::expect_rows() {
  for (const int64_t room : {largest_frame(), all_frames()}) {
    session(*backend_, room);
    expect_near(encode(*backend_, frames(), 1e9, room), rows_, concat("rows, room for ", room));
  }
}

void VisionChecks::expect_same_bits(const BackendFactory& factory,
                                    const std::vector<BackendOptions>& others) {
  const int64_t room = largest_frame();
  session(*backend_, room);
  const std::vector<float> whole = encode(*backend_, frames(), 1e9, room);
  session(*backend_, all_frames());
  EXPECT_TRUE(encode(*backend_, frames(), 1e-9, all_frames()) == whole) << "the smallest pieces";
  const double some = VisionWalk(*config_.vision, frames(), room).left() / 71;
  EXPECT_TRUE(encode(*backend_, frames(), some, all_frames()) == whole) << "pieces of a size";
  std::vector<VisionFrame> reversed = frames();
  std::ranges::reverse(reversed);
  session(*backend_, all_frames());
  EXPECT_TRUE(encode(*backend_, reversed, some, all_frames()) == whole) << "another order";
  for (const BackendOptions& options : others) {
    const auto other = factory(weights_, config_, options).value();
    session(*other, room);
    EXPECT_TRUE(encode(*other, frames(), some, room) == whole) << other->description();
  }
}

void VisionChecks::expect_logits(int piece) {
  TestSession run = session(*backend_, largest_frame());
  encode(*backend_, frames(), 1e9, largest_frame());
  for (size_t i = 0; i < prompts_.size(); ++i) {
    const VisionPrompt& prompt = prompts_[i];
    const size_t step = piece == 0 ? prompt.ids.size() : static_cast<size_t>(piece);
    std::vector<float> logits;
    for (size_t at = 0; at < prompt.ids.size(); at += step) {
      const size_t count = std::min(step, prompt.ids.size() - at);
      const auto rows = run.pass({{.sequence = static_cast<int>(i),
                                   .tokens = std::span(prompt.ids).subspan(at, count),
                                   .positions = std::span(prompt.positions).subspan(at, count),
                                   .media = std::span(prompt.places).subspan(at, count)}});
      logits.insert(logits.end(), rows.begin(), rows.end());
    }
    expect_near(std::span(logits).last(prompt.logits.size()), prompt.logits,
                concat("logits of prompt ", i, " in pieces of ", step));
  }
}

std::vector<float> VisionChecks::draft_logits(Backend& backend, Rows rows) const {
  constexpr size_t kChunk = 64;
  TestSession run = session(backend, largest_frame());
  encode(backend, frames(), 1e9, largest_frame());
  const VisionPrompt& prompt = prompts_.front();
  for (size_t at = 0; at < prompt.ids.size(); at += kChunk) {
    const size_t count = std::min(kChunk, prompt.ids.size() - at);
    TestSession::Feed feed{.tokens = std::span(prompt.ids).subspan(at, count),
                           .positions = std::span(prompt.positions).subspan(at, count)};
    if (rows == Rows::of_media) feed.media = std::span(prompt.places).subspan(at, count);
    run.pass({feed});
  }
  int32_t next = 0;
  for (const auto& position : prompt.positions)
    next = std::max(next, *std::ranges::max_element(position) + 1);
  return run.draft({{.token = 3, .position = next, .count = kDrafted}}).logits;
}

void VisionChecks::expect_drafts_like(const BackendFactory& factory) {
  const auto other = factory(weights_, config_, options_).value();
  const std::vector<float> expected = draft_logits(*other, Rows::of_media);
  expect_near(draft_logits(*backend_, Rows::of_media), expected, "drafts");
  EXPECT_GT(relative_error(draft_logits(*backend_, Rows::of_tokens), expected), 100 * error_max_);
}

void VisionChecks::expect_not_finite_rows_to_be_seen() {
  session(*backend_, all_frames());
  MediaPatches broken = media_[0]->patches;
  const uint8_t unused = 7;
  for (uint8_t& one : broken.levels) one = one == unused ? uint8_t{8} : one;
  broken.levels.back() = unused;
  broken.values[2][unused] = std::numeric_limits<float>::quiet_NaN();
  std::vector<VisionFrame> all = frames();
  all[0].media = &broken;
  VisionWalk walk(*config_.vision, all, all_frames());
  while (!walk.done()) walk.advance(*backend_, 1e9);
  EXPECT_FALSE(backend_->finite_media(all[0].places));
  EXPECT_TRUE(backend_->finite_media(all[1].places));
}

void VisionChecks::expect_rows_to_come_back_from_host() {
  session(*backend_, all_frames());
  const std::vector<float> rows = encode(*backend_, frames(), 1e9, all_frames());
  std::vector<IdPair> stores, loads;
  std::vector<int32_t> used;
  for (const auto& medium : media_)
    for (const auto& places : medium->places)
      for (const int32_t place : places) {
        const int32_t host = kMediaRows - 1 - static_cast<int32_t>(used.size());
        stores.push_back({.from = place, .to = host});
        loads.push_back({.from = host, .to = place});
        used.push_back(place);
      }
  backend_->move_media(CacheMove::store, stores);
  backend_->poison_media(used);
  EXPECT_FALSE(backend_->finite_media(used));
  backend_->move_media(CacheMove::load, loads);
  EXPECT_TRUE(read_rows(*backend_) == rows);
}

void VisionChecks::report() const {
  testing::Test::RecordProperty("error", concat(error_seen_));
  std::printf("largest error %.2e of the standard deviation\n", error_seen_);
}

}  // namespace nibble
