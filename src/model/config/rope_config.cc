// Rotary settings: default and YaRN. Semantics and default values follow transformers'
// modeling_rope_utils (5.x); the formula itself is in rope.cc.
#include "model/config/rope_config.h"

#include <algorithm>
#include <cmath>

namespace nibble {
namespace {

constexpr std::string_view kKnownKeys[] = {
    "rope_type",     "type",
    "rope_theta",    "partial_rotary_factor",
    "mrope_section", "mrope_interleaved",
    "factor",        "original_max_position_embeddings",
    "beta_fast",     "beta_slow",
    "mscale",        "mscale_all_dim",
    "truncate",      "attention_factor",
};

/// A number that may stand in the rope object, beside it, or in both places if equal.
Result<double> shared_number(const ConfigSection& rope, const ConfigSection& text,
                             std::string_view key, NumberRange range) {
  if (!rope.has(key)) return text.number(key, range);
  const double inner = TRY(rope.number(key, range));
  const double outer = TRY(text.number_or(key, inner, range));
  if (inner != outer)
    return make_error(ErrorCode::corrupt, {.what = text.name(key),
                                           .expected = concat(inner, " as in ", rope.name(key)),
                                           .found = concat(outer)});
  return inner;
}

Result<void> refuse_unknown_keys(const ConfigSection& rope) {
  for (const auto& member : rope.object().as_object()) {
    if (!known_rope_key(member.key))
      return make_error(ErrorCode::unsupported,
                        {.what = concat("unknown key ", rope.name(member.key)),
                         .advice = "rope_type default and yarn are known"});
  }
  return {};
}

/// Growth of the softmax temperature with the extension factor (YaRN paper, eq. 22).
double yarn_mscale(double factor, double mscale) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

Result<double> yarn_attention_factor(const ConfigSection& rope, double factor) {
  if (rope.has("attention_factor")) return rope.number("attention_factor", {1e-3, 1e3});
  const double mscale = TRY(rope.number_or("mscale", 0.0, {0.0, 1e3}));
  const double all_dim = TRY(rope.number_or("mscale_all_dim", 0.0, {0.0, 1e3}));
  if (mscale != 0.0 && all_dim != 0.0)
    return yarn_mscale(factor, mscale) / yarn_mscale(factor, all_dim);
  return yarn_mscale(factor, 1.0);
}

Result<YarnConfig> parse_yarn(const ConfigSection& rope, const ConfigSection& text,
                              int64_t max_positions) {
  constexpr std::string_view kOriginal = "original_max_position_embeddings";
  constexpr NumberRange kPositions{1.0, 1e9};
  YarnConfig yarn;
  yarn.original_max_positions = static_cast<double>(max_positions);
  if (text.has(kOriginal) || rope.has(kOriginal))
    yarn.original_max_positions = TRY(shared_number(rope, text, kOriginal, kPositions));
  const double ratio = static_cast<double>(max_positions) / yarn.original_max_positions;
  yarn.factor = TRY(rope.number_or("factor", std::max(ratio, 1.0), {1.0, 1e4}));
  yarn.beta_fast = TRY(rope.number_or("beta_fast", 32.0, {0.0, 1e6}));
  yarn.beta_slow = TRY(rope.number_or("beta_slow", 1.0, {0.0, 1e6}));
  if (yarn.beta_fast == 0.0) yarn.beta_fast = 32.0;  // zero means the default, as in transformers
  if (yarn.beta_slow == 0.0) yarn.beta_slow = 1.0;
  if (yarn.beta_fast < yarn.beta_slow)
    return make_error(ErrorCode::corrupt,
                      {.what = rope.name("beta_fast"),
                       .expected = concat("at least beta_slow ", yarn.beta_slow),
                       .found = concat(yarn.beta_fast)});
  yarn.truncate = TRY(rope.boolean("truncate")).value_or(true);
  yarn.attention_factor = TRY(yarn_attention_factor(rope, yarn.factor));
  return yarn;
}

Result<std::array<int, 3>> parse_mrope_section(const ConfigSection& rope) {
  TRY(rope.must_be_true("mrope_interleaved", "only interleaved multi-axis rope is known"));
  std::array<int, 3> section = {11, 11, 10};
  if (!rope.has("mrope_section")) return section;
  const auto sizes = TRY(rope.integers_or_none("mrope_section", {0, 4096}));
  if (sizes.size() != 3)
    return rope.wrong("mrope_section", "3 integers (t, h, w)", *rope.find("mrope_section"));
  for (size_t axis = 0; axis < 3; ++axis) section[axis] = static_cast<int>(sizes[axis]);
  return section;
}

Result<std::string> parse_rope_type(const ConfigSection& rope) {
  const std::string_view key = rope.has("rope_type") ? "rope_type" : "type";
  const std::string type = TRY(rope.text_or(key, "default"));
  if (type == "default" || type == "yarn") return type;
  return make_error(ErrorCode::unsupported, {.what = rope.name(key),
                                             .expected = "\"default\" or \"yarn\"",
                                             .found = concat("\"", type, "\"")});
}

Result<int> parse_rotary_dims(const ConfigSection& rope, const ConfigSection& text,
                              const RopeContext& context, std::string& notice) {
  constexpr std::string_view kFactor = "partial_rotary_factor";
  constexpr NumberRange kShares{0.0, 1.0};
  const double outer = TRY(text.number_or(kFactor, context.default_rotary_factor, kShares));
  const double share = TRY(rope.number_or(kFactor, outer, kShares));
  if (rope.has(kFactor) && text.has(kFactor) && share != outer)
    notice =
        concat(rope.name(kFactor), " ", share, " is taken, not ", text.name(kFactor), " ", outer);
  const int dims = static_cast<int>(context.head_dim * share);
  if (dims < 2 || dims % 2 != 0)
    return make_error(ErrorCode::corrupt,
                      {.what = text.name(kFactor),
                       .expected = concat("a share of head_dim ", context.head_dim,
                                          " that gives an even number of dimensions"),
                       .found = concat(share)});
  return dims;
}

}  // namespace

bool known_rope_key(std::string_view key) {
  return std::ranges::find(kKnownKeys, key) != std::end(kKnownKeys);
}

Result<RopeConfig> parse_rope(const ConfigSection& text, const RopeContext& context) {
  const bool both = text.has("rope_parameters") && text.has("rope_scaling");
  if (both && !(*text.find("rope_parameters") == *text.find("rope_scaling")))
    return make_error(ErrorCode::corrupt, {.what = text.name("rope_scaling"),
                                           .expected = "one of rope_parameters and rope_scaling",
                                           .found = "both, not equal"});
  const Json none = Json::Object{};
  ConfigSection rope(none, text.name("rope_parameters."));
  for (const std::string_view key : {"rope_parameters", "rope_scaling"})
    if (text.has(key)) rope = TRY(text.section(key));
  TRY(refuse_unknown_keys(rope));

  RopeConfig config;
  const std::string type = TRY(parse_rope_type(rope));
  config.theta = TRY(shared_number(rope, text, "rope_theta", {1.5, 1e12}));
  config.rotary_dims = TRY(parse_rotary_dims(rope, text, context, config.notice));
  if (context.multi_axis) config.mrope_section = TRY(parse_mrope_section(rope));
  if (!context.multi_axis && rope.has("mrope_section"))
    return make_error(ErrorCode::unsupported, {.what = rope.name("mrope_section"),
                                               .expected = "no multi-axis rope in this family",
                                               .found = rope.find("mrope_section")->dump()});
  if (type == "yarn") config.yarn = TRY(parse_yarn(rope, text, context.max_positions));
  return config;
}

}  // namespace nibble
