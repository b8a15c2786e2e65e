// Numbers: model cards of Qwen3.5 and Qwen3.6-35B-A3B, "Best Practices".
#include "server/profiles.h"

#include <algorithm>

namespace nibble {

namespace {

constexpr Profile kProfiles[] = {
    {.name = "thinking-general", .top_p = 0.95, .top_k = 20, .presence_penalty = 1.5},
    {.name = "thinking-coding", .temperature = 0.6, .top_p = 0.95, .top_k = 20},
    {.name = "instruct-general",
     .temperature = 0.7,
     .top_p = 0.8,
     .top_k = 20,
     .presence_penalty = 1.5,
     .thinking = false},
    {.name = "instruct-reasoning", .top_k = 40, .presence_penalty = 2.0, .thinking = false},
    {.name = "instruct-creative",  // the same, under the name some know it by
     .top_k = 40,
     .presence_penalty = 2.0,
     .thinking = false},
};

}  // namespace

std::span<const Profile> built_in_profiles() { return kProfiles; }

std::vector<std::string> servable_names(const std::vector<std::string>& names) {
  std::vector<std::string> all = names;
  for (const Profile& profile : kProfiles) all.push_back(concat(names.front(), ":", profile.name));
  for (const Profile& profile : kProfiles) all.emplace_back(profile.name);
  return all;
}

const Profile* profile_of(std::string_view model, const std::vector<std::string>& names) {
  const auto has = [&](std::string_view name) {
    return std::ranges::find(names, name) != names.end();
  };
  if (has(model)) return nullptr;
  const size_t colon = model.rfind(':');
  if (colon != std::string_view::npos && !has(model.substr(0, colon))) return nullptr;
  const std::string_view wanted = colon == std::string_view::npos ? model : model.substr(colon + 1);
  const auto found =
      std::ranges::find_if(kProfiles, [&](const Profile& p) { return p.name == wanted; });
  return found == std::end(kProfiles) ? nullptr : found;
}

void apply_profile(const Profile& profile, Api api, Json& body) {
  const auto fill = [&](std::string_view name, Json value) {
    const Json* given = body.find(name);
    if (given == nullptr || given->is_null()) body.set(name, std::move(value));
  };
  fill("temperature", Json(profile.temperature));
  fill("top_p", Json(profile.top_p));
  fill("top_k", Json(profile.top_k));
  fill("min_p", Json(profile.min_p));
  if (api == Api::chat || api == Api::completions) {
    fill("presence_penalty", Json(profile.presence_penalty));
    fill("repetition_penalty", Json(profile.repetition_penalty));
  }
  if (api == Api::messages && profile.thinking)
    fill("thinking", Json(Json::Object{{"type", Json("adaptive")}}));
  const Json* kwargs = body.find("chat_template_kwargs");
  const bool said = kwargs != nullptr && kwargs->find("enable_thinking") != nullptr;
  const bool effort = body.find("reasoning_effort") != nullptr || body.find("reasoning") != nullptr;
  if ((api == Api::chat || api == Api::responses) && !said && !effort)
    fill("enable_thinking", Json(profile.thinking));
}

}  // namespace nibble
