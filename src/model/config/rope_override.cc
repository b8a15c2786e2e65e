// Merges the keys into the rotary settings where the file has them, in transformers 5's spelling.
#include "model/config/rope_override.h"

#include <algorithm>

#include "model/config/rope_config.h"

namespace nibble {
namespace {

constexpr JsonLimits kLimits = {.bytes_max = size_t{64} << 10, .depth_max = 8};
constexpr std::string_view kParameters = "rope_parameters";
constexpr std::string_view kScaling = "rope_scaling";
constexpr std::string_view kText = "text_config";

Error wrong_flag(std::string_view flag, std::string_view expected, std::string_view found) {
  return make_error(ErrorCode::invalid_argument,
                    {.what = flag, .expected = expected, .found = found});
}

Result<Json> parse_object(std::string_view flag, std::string_view text) {
  auto json = parse_json(text, flag, kLimits);
  if (!json.ok()) return Error{ErrorCode::invalid_argument, json.error().message};
  if (!json.value().is_object()) return wrong_flag(flag, "a JSON object", json.value().type_name());
  return json;
}

void remove(Json::Object& object, std::string_view key) {
  std::erase_if(object, [&](const Json::Member& member) { return member.key == key; });
}

/// Adds members of `from` to those of `to`. The type has two names; one of them is left.
void merge(Json& to, const Json& from) {
  for (const auto& [key, value] : from.as_object()) {
    const bool type = key == "type" || key == "rope_type";
    if (type) remove(to.as_object(), "type");
    to.set(type ? "rope_type" : key, value);
  }
}

Result<void> take_keys(std::string_view flag, std::string_view path, const Json& keys,
                       Json& taken) {
  if (!keys.is_object()) return wrong_flag(concat(flag, ": ", path), "an object", keys.type_name());
  for (const auto& member : keys.as_object())
    if (!known_rope_key(member.key))
      return make_error(ErrorCode::invalid_argument,
                        {.what = concat(flag, ": unknown key ", path, path.empty() ? "" : ".",
                                        Json(member.key).dump()),
                         .expected = "keys of rope_parameters, such as rope_type and factor"});
  merge(taken, keys);
  return {};
}

Result<RopeOverride> not_empty(RopeOverride change) {
  if (!change.keys.as_object().empty()) return change;
  return wrong_flag(change.flag, "keys such as {\"rope_type\": \"yarn\", \"factor\": 4}", "none");
}

Result<void> take_section(std::string_view flag, std::string_view path, const Json& section,
                          Json& taken) {
  for (const auto& [key, value] : section.as_object()) {
    const std::string name = concat(path, key);
    if (key == kParameters || key == kScaling) {
      TRY(take_keys(flag, name, value, taken));
    } else if (path.empty() && key == kText && value.is_object()) {
      TRY(take_section(flag, concat(kText, "."), value, taken));
    } else {
      return make_error(
          ErrorCode::invalid_argument,
          {.what = concat(flag, ": key ", Json(name).dump()),
           .expected = "rope_parameters or rope_scaling, at the top or in text_config",
           .advice = "no other setting of config.json can be replaced"});
    }
  }
  return {};
}

/// The object of a config.json with the rotary settings: the text model's, or the top one where
/// only that has any.
Json& rope_home(Json& config) {
  const auto has_any = [](const Json& section) {
    return std::ranges::any_of(std::array{kParameters, kScaling, std::string_view("rope_theta")},
                               [&](std::string_view key) {
                                 const Json* value = section.find(key);
                                 return value != nullptr && !value->is_null();
                               });
  };
  Json* text = config.find(kText);
  if (text == nullptr || !text->is_object()) return config;
  return has_any(*text) || !has_any(config) ? *text : config;
}

void apply(const RopeOverride& change, Json& config) {
  Json& home = rope_home(config);
  Json rope = Json::Object{};
  for (const auto key : {kScaling, kParameters})
    if (const Json* value = home.find(key); value != nullptr && value->is_object()) rope = *value;
  merge(rope, change.keys);
  remove(home.as_object(), kScaling);
  for (const auto& member : change.keys.as_object()) remove(home.as_object(), member.key);
  home.set(kParameters, std::move(rope));
}

}  // namespace

Result<RopeOverride> parse_rope_scaling(std::string_view flag, std::string_view text) {
  RopeOverride change{.flag = std::string(flag), .keys = Json(Json::Object())};
  const Json object = TRY(parse_object(flag, text));
  TRY(take_keys(flag, "", object, change.keys));
  return not_empty(std::move(change));
}

Result<RopeOverride> parse_config_overrides(std::string_view flag, std::string_view text) {
  RopeOverride change{.flag = std::string(flag), .keys = Json(Json::Object())};
  const Json object = TRY(parse_object(flag, text));
  TRY(take_section(flag, "", object, change.keys));
  return not_empty(std::move(change));
}

Result<ModelConfig> parse_config(const Json& config, const std::optional<RopeOverride>& change) {
  if (!change || !config.is_object()) return ModelConfig::parse(config);
  Json changed = config;
  apply(*change, changed);
  auto parsed = ModelConfig::parse(changed);
  if (parsed.ok()) return parsed;
  return Error{ErrorCode::invalid_argument,
               concat("with ", change->flag, ": ", parsed.error().message)};
}

}  // namespace nibble
