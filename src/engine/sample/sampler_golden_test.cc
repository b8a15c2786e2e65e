// The sampler against tools/oracle/sampler_golden.py: each draw, each mass, each log-probability
// and rank, and by a chi-square test the distribution of many draws.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "base/file.h"
#include "base/json.h"
#include "engine/sample/sampler.h"
#include "engine/sample/token_bits.h"
#include "testing/source_dir.h"

namespace nibble {
namespace {

std::vector<int32_t> ids(const Json& list) {
  std::vector<int32_t> out;
  for (const Json& id : list.as_array()) out.push_back(static_cast<int32_t>(id.as_int()));
  return out;
}

/// One case of the file; members own what the sampler looks at.
struct Case {
  explicit Case(const Json& given) : json(given) {
    for (const Json& x : at("logits").as_array())
      logits.push_back(static_cast<float>(x.as_double()));
    prompt = ids(at("prompt"));
    generated = ids(at("generated"));
    params = {.temperature = number("temperature"),
              .top_k = static_cast<int32_t>(at("top_k").as_int()),
              .top_p = number("top_p"),
              .min_p = number("min_p"),
              .presence_penalty = number("presence_penalty"),
              .frequency_penalty = number("frequency_penalty"),
              .repetition_penalty = number("repetition_penalty"),
              .seed = std::stoull(at("seed").as_string()),
              .choice = static_cast<uint32_t>(at("choice").as_int()),
              .top_logprobs = 5};
    for (const Json& entry : at("logit_bias").as_array())
      params.logit_bias.push_back({static_cast<int32_t>(entry.as_array()[0].as_int()),
                                   static_cast<float>(entry.as_array()[1].as_double())});
    for (const Json& p : at("probabilities").as_array()) probabilities.push_back(p.as_double());
    mask = without("masked");
  }
  const Json& at(const char* key) const { return *json.find(key); }
  double number(const char* key) const { return at(key).as_double(); }
  std::vector<uint32_t> without(const char* key) const {
    std::vector<uint32_t> bits = Sampler::all_sampleable(static_cast<int32_t>(logits.size()));
    for (const int32_t token : ids(at(key))) forbid_token(bits, token);
    return bits;
  }
  Sampler sampler() const { return {static_cast<int32_t>(logits.size()), without("padding")}; }
  SampledToken sample(Sampler& with, uint64_t position) const {
    return with.sample(logits, params, {prompt, generated}, position, mask).value();
  }

  const Json& json;
  std::vector<float> logits;
  std::vector<int32_t> prompt, generated;
  SamplingParams params;
  std::vector<double> probabilities;
  std::vector<uint32_t> mask;
};

const Json& file() {
  static const Json json = [] {
    const auto text =
        read_text_file(NIBBLE_SOURCE_DIR "/tests/golden/sampler/cases.json", uint64_t{1} << 22);
    CHECK(text.ok(), text.error().message);
    return parse_json(text.value(), "cases.json").value();
  }();
  return json;
}

void expect_logprobs(const PositionLogprobs& found, const Json& expected,
                     const std::string& where) {
  EXPECT_EQ(found.chosen.token, expected.find("token")->as_int()) << where;
  EXPECT_NEAR(found.chosen.logprob, expected.find("logprob")->as_double(), 1e-6) << where;
  EXPECT_EQ(found.rank, expected.find("rank")->as_int()) << where;
  const Json::Array& top = expected.find("top")->as_array();
  ASSERT_EQ(found.top.size(), top.size()) << where;
  for (size_t i = 0; i < top.size(); ++i) {
    EXPECT_EQ(found.top[i].token, top[i].as_array()[0].as_int()) << where;
    EXPECT_NEAR(found.top[i].logprob, top[i].as_array()[1].as_double(), 1e-6) << where;
  }
}

TEST(SamplerGolden, EveryDrawAndLogprobIsTheOracles) {
  int cases = 0;
  for (const Json& json : file().find("cases")->as_array()) {
    const Case c(json);
    const std::string where = concat("case ", cases++);
    Sampler sampler = c.sampler();
    uint64_t position = std::stoull(c.at("position").as_string());
    for (const int32_t wanted : ids(c.at("draws")))
      EXPECT_EQ(c.sample(sampler, position++).token, wanted) << where << " at " << position - 1;
    const TokenChoice choice =
        Sampler::choice_of(c.params, {c.prompt, c.generated}, position, c.mask);
    EXPECT_EQ(sampler.choose(c.logits, choice).mass, std::stoull(c.at("mass").as_string()))
        << where;
    const Json::Array& logprobs = c.at("logprobs").as_array();
    const SampledToken first = c.sample(sampler, std::stoull(c.at("position").as_string()));
    expect_logprobs(*first.logprobs, logprobs[0], where);
    for (const Json& wanted : logprobs) {
      const auto token = static_cast<int32_t>(wanted.find("token")->as_int());
      expect_logprobs(sampler.logprobs(c.logits, token, 5).value(), wanted, where);
    }
  }
  EXPECT_EQ(cases, 64);
}

/// An upper bound for chi-square with `degrees` of freedom that is passed by chance once in 10^7
/// (Wilson and Hilferty's cube).
double chi_square_bound(double degrees) {
  constexpr double kSigmas = 5.2;
  const double t = 2.0 / (9.0 * degrees);
  return degrees * std::pow(1.0 - t + kSigmas * std::sqrt(t), 3);
}

TEST(SamplerGolden, ManyDrawsPassTheChiSquareTest) {
  constexpr int kDraws = 20000;
  constexpr double kCellMin = 8.0;  // smaller expected counts are pooled
  int tested = 0;
  for (size_t at = 0; at < file().find("cases")->as_array().size(); ++at) {
    const Case c(file().find("cases")->as_array()[at]);
    Sampler sampler = c.sampler();
    std::vector<int> counts(c.logits.size());
    for (int i = 0; i < kDraws; ++i)
      ++counts[static_cast<size_t>(c.sample(sampler, static_cast<uint64_t>(i)).token)];
    double statistic = 0.0;
    double pooled = 0.0;
    double pooled_expected = 0.0;
    int cells = 0;
    const auto add = [&](double count, double expected) {
      statistic += (count - expected) * (count - expected) / expected;
      ++cells;
    };
    for (size_t token = 0; token < counts.size(); ++token) {
      const double expected = c.probabilities[token] * kDraws;
      if (expected == 0.0) {
        EXPECT_EQ(counts[token], 0) << "case " << at << " token " << token;
      } else if (expected < kCellMin) {
        pooled += counts[token];
        pooled_expected += expected;
      } else {
        add(counts[token], expected);
      }
    }
    if (pooled_expected >= kCellMin) add(pooled, pooled_expected);
    if (cells < 2) continue;
    ++tested;
    EXPECT_LT(statistic, chi_square_bound(cells - 1)) << "case " << at << ", cells " << cells;
  }
  EXPECT_GT(tested, 25);
}

TEST(SamplerGolden, LogprobsOfAnImpossibleRowAreStillNumbersOrMinusInfinity) {
  const std::vector<float> logits(40, -std::numeric_limits<float>::infinity());
  const Sampler sampler(40, Sampler::all_sampleable(40));
  const PositionLogprobs found = sampler.logprobs(logits, 3, 2).value();
  EXPECT_EQ(found.chosen.logprob, -std::numeric_limits<double>::infinity());
  std::vector<float> broken(40, 0.0F);
  broken[7] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(sampler.logprobs(broken, 3, 2).error().code, ErrorCode::corrupt);
}

}  // namespace
}  // namespace nibble
