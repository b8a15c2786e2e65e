// The scoring loop over a scripted backend whose logits follow from the last two ids: chunk
// borders, several sequences, lockstep with a reference, the logits file, and bad input.
#include "eval/score.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "eval/teacher_forced.h"

namespace nibble {
namespace {

constexpr int kVocab = 7;

/// logits[v] = gain * ((id + 2 * previous id + v) % kVocab); the previous id lives in the state
/// slot, so a walk that loses or leaks state gives other numbers.
class ScriptedBackend final : public Backend {
 public:
  explicit ScriptedBackend(float gain) : gain_(gain) {}
  std::string_view name() const override { return "scripted"; }
  std::string arithmetic() override { return "scripted"; }
  std::string description() const override { return "scripted"; }
  Result<void> reserve(const PoolSizes& sizes) override {
    sizes_ = sizes;
    return {};
  }
  int64_t page_bytes() const override { return 0; }
  int64_t state_slot_bytes() const override { return 0; }
  Residual embed(const Batch&) override { return {}; }
  Residual attention_block(int, const Batch&, Residual h) override { return h; }
  Residual delta_net_block(int, const Batch&, Residual h) override { return h; }
  Residual moe_block(int, const Batch&, Residual h) override { return h; }
  Residual dense_mlp_block(int, const Batch&, Residual h) override { return h; }
  HeadOutput head(const Batch& batch, Residual) override {
    logits_.clear();
    rows_seen_ = std::max(rows_seen_, batch.rows());
    for (size_t row = 0; row < batch.tokens.size(); ++row) {
      EXPECT_EQ(batch.sequences[0].kv_begin + static_cast<int>(row), seen_);
      EXPECT_EQ(batch.positions[row], seen_++);
      for (int v = 0; v < kVocab; ++v) logits_.push_back(logit(previous_, batch.tokens[row], v));
      previous_ = batch.tokens[row];
    }
    return {.logits = logits_, .hidden = {}};
  }
  float logit(int previous, int id, int v) const {
    return v == broken_ ? NAN : gain_ * static_cast<float>((id + 2 * previous + v) % kVocab);
  }
  void zero_states(std::span<const int32_t>) override {
    previous_ = 0;
    seen_ = 0;
  }
  void move_pages(CacheMove, std::span<const IdPair>) override {}
  void move_states(CacheMove, std::span<const IdPair>) override {}
  std::span<std::byte> host_page(int32_t) override { return {}; }
  std::span<std::byte> host_state(int32_t) override { return {}; }
  bool finite(std::span<const int32_t>, std::span<const int32_t>) override { return true; }
  void poison_page(int32_t) override {}
  void poison_state(int32_t) override {}

  int rows_seen_ = 0;
  int broken_ = -1;
  PoolSizes sizes_;

 private:
  float gain_;
  int previous_ = 0;
  int seen_ = 0;  // tokens of the sequence so far
  std::vector<float> logits_;
};

ModelConfig small_config() {
  ModelConfig config;
  config.vocab_rows = kVocab;
  config.max_positions = 4096;
  config.layers = {LayerKind::attention};
  return config;
}

std::vector<int32_t> walk(int length) {
  std::vector<int32_t> ids;
  for (int i = 0; i < length; ++i) ids.push_back((i * i + 3 * i + 2) % kVocab);
  return ids;
}

double expected_sum(const ScriptedBackend& backend, const std::vector<int32_t>& ids) {
  double sum = 0.0;
  for (size_t i = 0; i + 1 < ids.size(); ++i) {
    std::vector<float> row;
    for (int v = 0; v < kVocab; ++v) row.push_back(backend.logit(i ? ids[i - 1] : 0, ids[i], v));
    sum += log_probability(row, ids[i + 1]);
  }
  return sum;
}

TEST(Score, ManyChunksAndSequences) {
  ScriptedBackend backend(0.3F);
  const ModelConfig config = small_config();
  ScoreRequest request{.sequences = {walk(1300), walk(1), walk(5)},
                       .model = {.backend = &backend, .config = &config}};
  int64_t last_done = 0;
  request.progress = [&](int64_t done, int64_t total) {
    EXPECT_EQ(total, 1306);
    last_done = done;
    return ScoreRequest::Next::go_on;
  };
  const ScoreResult result = score(request).value();
  EXPECT_EQ(result.text.predicted(), 1299 + 0 + 4);
  EXPECT_NEAR(result.text.sum(), expected_sum(backend, walk(1300)) + expected_sum(backend, walk(5)),
              1e-9);
  EXPECT_NEAR(result.text.perplexity(), std::exp(-result.text.sum() / 1303), 1e-12);
  EXPECT_LE(backend.rows_seen_, 512);
  EXPECT_GE(backend.sizes_.pages * 64, 1300);
  EXPECT_EQ(last_done, 1306);
  EXPECT_FALSE(result.divergence);
}

TEST(Score, AgainstAReference) {
  ScriptedBackend model(0.3F);
  ScriptedBackend reference(0.6F);
  const ModelConfig config = small_config();
  const ScoreResult result = score({.sequences = {walk(600), walk(7)},
                                    .model = {.backend = &model, .config = &config},
                                    .reference = ScoredModel{&reference, &config}})
                                 .value();
  std::vector<float> p;
  std::vector<float> q;
  for (int v = 0; v < kVocab; ++v) {  // every row is a rotation of this one
    p.push_back(reference.logit(0, 0, v));
    q.push_back(model.logit(0, 0, v));
  }
  ASSERT_TRUE(result.divergence);
  EXPECT_EQ(result.divergence->positions, 607);
  EXPECT_NEAR(result.divergence->kl_mean, kl_divergence(p, q), 1e-6);
  EXPECT_NEAR(result.divergence->kl_max, kl_divergence(p, q), 1e-6);
  EXPECT_EQ(result.divergence->top1_agreement, 1.0);
  EXPECT_NEAR(result.reference_text->sum(),
              expected_sum(reference, walk(600)) + expected_sum(reference, walk(7)), 1e-9);
}

TEST(Score, StopsWhenAsked) {
  ScriptedBackend backend(1.0F);
  const ModelConfig config = small_config();
  ScoreRequest request{.sequences = {walk(2000)}, .model = {&backend, &config}};
  request.progress = [](int64_t, int64_t) { return ScoreRequest::Next::stop; };
  const auto result = score(request);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::cancelled);
  EXPECT_NE(result.error().message.find("512 of 2000"), std::string::npos);
}

TEST(Score, ImagesNeedATower) {
  ScriptedBackend backend(1.0F);
  const ModelConfig config = small_config();
  const auto patches = std::make_shared<MediaPatches>(MediaPatches{.grid = {1, 2, 2}});
  const auto result = score({.sequences = {walk(4)},
                             .images = {{{.begin = 1, .patches = patches}}},
                             .model = {&backend, &config}});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message,
            "images for the model: expected a vision tower that encodes them, found none");
}

TEST(Score, ChunkRowsAreBounded) {
  ModelConfig config = small_config();
  EXPECT_EQ(TeacherForced::chunk_rows(config), 512);
  config.vocab_rows = 248320;
  EXPECT_EQ(TeacherForced::chunk_rows(config), 64);
  config.vocab_rows = 65536;
  EXPECT_EQ(TeacherForced::chunk_rows(config), 256);
}

TEST(Score, Refusals) {
  ScriptedBackend backend(1.0F);
  const ModelConfig config = small_config();
  ModelConfig other = config;
  other.vocab_rows = kVocab + 1;
  const ScoredModel model{&backend, &config};
  EXPECT_EQ(
      score({.sequences = {walk(4)}, .model = model, .reference = ScoredModel{&backend, &other}})
          .error()
          .code,
      ErrorCode::invalid_argument);
  const auto too_long = score({.sequences = {walk(5000)}, .model = model});
  EXPECT_NE(too_long.error().message.find("4096 ids, found 5000"), std::string::npos);
  backend.broken_ = 2;
  const auto broken = score({.sequences = {walk(4)}, .model = model});
  EXPECT_EQ(broken.error().code, ErrorCode::corrupt);
  EXPECT_NE(broken.error().message.find("position 0"), std::string::npos);
}

TEST(ParseIds, OneSequenceOrAList) {
  const auto parse = [](std::string_view text) {
    return parse_ids(parse_json(text, "test").value(), kVocab);
  };
  EXPECT_EQ(parse(R"({"ids":[1,2,3]})").value(), (std::vector<std::vector<int32_t>>{{1, 2, 3}}));
  EXPECT_EQ(parse(R"({"ids":[[1],[6,0]]})").value(),
            (std::vector<std::vector<int32_t>>{{1}, {6, 0}}));
  for (const char* bad :
       {R"({})", R"([1])", R"({"ids":3})", R"({"ids":[]})", R"({"ids":[[]]})", R"({"ids":[7]})",
        R"({"ids":[-1]})", R"({"ids":[1.0]})", R"({"ids":["1"]})", R"({"ids":[[1],2]})",
        R"({"ids":[1,[2]]})", R"({"ids":[99999999999999]})"}) {
    const auto result = parse(bad);
    ASSERT_FALSE(result) << bad;
    EXPECT_NE(result.error().message.find("expected"), std::string::npos) << bad;
  }
}

class LogitsFileTest : public testing::Test {
 protected:
  std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / concat("nibble-logits-", ::getpid(), ".safetensors");
  void SetUp() override { std::filesystem::remove(path_); }
  void TearDown() override { std::filesystem::remove(path_); }
};

TEST_F(LogitsFileTest, HoldsEveryRowUnderItsName) {
  const std::vector<int64_t> rows = {2, 1};
  const std::vector<float> values = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  {
    LogitsFile file = LogitsFile::create(path_, rows, 3).value();
    file.append(std::span(values).first(3)).value();
    EXPECT_FALSE(std::filesystem::exists(path_));
    file.append(std::span(values).subspan(3)).value();
    file.finish().value();
  }
  const std::string bytes = read_text_file(path_, 1 << 20).value();
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  EXPECT_EQ(header % 8, 0U);
  ASSERT_EQ(bytes.size(), 8 + header + sizeof(float) * values.size());
  const Json json = parse_json(std::string_view(bytes).substr(8, header), "header").value();
  EXPECT_EQ(json.find("logits.0")->dump(),
            R"({"dtype":"F32","shape":[2,3],"data_offsets":[0,24]})");
  EXPECT_EQ(json.find("logits.1")->dump(),
            R"({"dtype":"F32","shape":[1,3],"data_offsets":[24,36]})");
  EXPECT_EQ(std::memcmp(bytes.data() + 8 + header, values.data(), 36), 0);
  EXPECT_EQ(LogitsFile::create(path_, rows, 3).error().code, ErrorCode::invalid_argument);
}

TEST_F(LogitsFileTest, AnUnfinishedFileIsRemoved) {
  const std::vector<int64_t> rows = {2};
  { LogitsFile file = LogitsFile::create(path_, rows, 3).value(); }
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_FALSE(std::filesystem::exists(path_.string() + ".partial"));
}

}  // namespace
}  // namespace nibble
