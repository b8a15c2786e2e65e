// Numbers: model cards of Qwen3.5 and Qwen3.6-35B-A3B, "Best Practices".
#include "server/request/profiles.h"

#include <algorithm>

#include "server/request/generation_request.h"

namespace nibble {

namespace {

using Kind = ProfileNumber::Kind;

// Ranges are those of the request's fields.
constexpr ProfileNumber kNumbers[] = {
    {"temperature", "temperature", Kind::real, 0.0, 100.0},
    {"top_p", "top_p", Kind::real, 0.0, 1.0},
    {"top_k", "top_k", Kind::whole, -1, INT32_MAX},
    {"min_p", "min_p", Kind::real, 0.0, 1.0},
    {"presence_penalty", "presence_penalty", Kind::real, -2.0, 2.0},
    {"frequency_penalty", "frequency_penalty", Kind::real, -2.0, 2.0},
    {"repetition_penalty", "repetition_penalty", Kind::real, 0.01, 10.0},
    {"max_tokens", "max_tokens", Kind::whole, 1, INT32_MAX},
    {"thinking_budget", "thinking_token_budget", Kind::whole, 0, INT32_MAX},
    {"answer_reserve", "answer_reserve", Kind::whole, 0, INT32_MAX},
    {"priority", "priority", Kind::whole, -1000, 1000},
};

// Other names of request fields that say the same.
constexpr struct {
  std::string_view field;
  std::string_view alias;
} kAliases[] = {
    {"thinking_token_budget", "max_thinking_tokens"},
    {"thinking_token_budget", "thinking_budget"},
    {"thinking_token_budget", "reasoning_budget"},
};

struct Sampling {
  double temperature = 1.0, top_p = 1.0;
  int32_t top_k = 0;
  double presence_penalty = 0.0;
};

Profile advised(std::string_view name, const Sampling& sampling, std::optional<bool> thinking) {
  return {.name = std::string(name),
          .numbers = json_object({{"temperature", Json(sampling.temperature)},
                                  {"top_p", Json(sampling.top_p)},
                                  {"top_k", Json(sampling.top_k)},
                                  {"min_p", Json(0.0)},
                                  {"presence_penalty", Json(sampling.presence_penalty)},
                                  {"repetition_penalty", Json(1.0)}}),
          .thinking = thinking};
}

const Json* said(const Json& body, std::string_view field) {
  const Json* value = body.find(field);
  return value != nullptr && !value->is_null() ? value : nullptr;
}

void erase(Json& object, std::string_view field) {
  std::erase_if(object.as_object(), [&](const Json::Member& m) { return m.key == field; });
}

/// The field under any of its names.
const Json* said_by_any_name(const Json& chat, std::string_view field) {
  if (const Json* value = said(chat, field)) return value;
  for (const auto& row : kAliases)
    if (row.field == field)
      if (const Json* value = said(chat, row.alias)) return value;
  return nullptr;
}

/// A service tier is a coarse priority.
bool says_priority(const Json& chat) {
  const Json* tier = said(chat, "service_tier");
  return tier != nullptr && (*tier == Json("flex") || *tier == Json("priority"));
}

void apply_number(const Profile& profile, const ProfileNumber& row, Json& chat) {
  const Json* value = profile.numbers.find(row.key);
  if (value == nullptr || row.key == "max_tokens") return;
  const Json* given = said_by_any_name(chat, row.field);
  const bool by_tier = row.key == "priority" && says_priority(chat);
  if ((given != nullptr || by_tier) && !profile.locks(row.key)) return;
  Json chosen = *value;
  const bool bound = row.key == "thinking_budget";  // -1 stands for none
  if (bound && given != nullptr && given->is_int() && given->as_int() >= 0)
    chosen = Json(std::min(given->as_int(), value->as_int()));
  for (const auto& alias : kAliases)
    if (alias.field == row.field) erase(chat, alias.alias);
  chat.set(row.field, std::move(chosen));
}

/// An object of a request to add members to; anything else there is the parser's to refuse.
Json* object_in(Json& chat, std::string_view field) {
  if (said(chat, field) == nullptr) chat.set(field, Json(Json::Object{}));
  Json* object = chat.find(field);
  return object->is_object() ? object : nullptr;
}

void apply_thinking(const Profile& profile, SaysThinking request, Json& chat) {
  if (!profile.thinking) return;
  const bool locked = profile.locks("thinking");
  if (request == SaysThinking::yes && !locked) return;
  if (locked && said(chat, "chat_template_kwargs") != nullptr)
    if (Json* kwargs = object_in(chat, "chat_template_kwargs")) erase(*kwargs, "enable_thinking");
  chat.set("enable_thinking", Json(*profile.thinking));
}

}  // namespace

std::span<const ProfileNumber> profile_numbers() { return kNumbers; }

bool Profile::locks(std::string_view key) const {
  return std::ranges::find(locked, key) != locked.end();
}

std::optional<int32_t> Profile::max_tokens() const {
  const Json* value = numbers.find("max_tokens");
  if (value == nullptr) return std::nullopt;
  return static_cast<int32_t>(value->as_int());
}

Profiles::Profiles()
    : profiles_{
          advised("thinking-general", {.top_p = 0.95, .top_k = 20, .presence_penalty = 1.5}, true),
          advised("thinking-coding", {.temperature = 0.6, .top_p = 0.95, .top_k = 20}, true),
          advised("instruct-general",
                  {.temperature = 0.7, .top_p = 0.8, .top_k = 20, .presence_penalty = 1.5}, false),
          advised("instruct-reasoning", {.top_k = 40, .presence_penalty = 2.0}, false),
          // The same, under the name some know it by.
          advised("instruct-creative", {.top_k = 40, .presence_penalty = 2.0}, false),
          {.name = "thinking", .thinking = true},
          {.name = "instruct", .thinking = false}} {}

void Profiles::add(Profile profile) {
  const auto same = std::ranges::find(profiles_, profile.name, &Profile::name);
  if (same != profiles_.end())
    *same = std::move(profile);
  else
    profiles_.push_back(std::move(profile));
}

void Profiles::set_default(std::string_view name) {
  CHECK(find(name) != nullptr, "no profile ", name);
  default_ = name;
}

const Profile* Profiles::find(std::string_view name) const {
  const auto found = std::ranges::find(profiles_, name, &Profile::name);
  return found == profiles_.end() ? nullptr : &*found;
}

const Profile* Profiles::standing() const { return find(default_); }

Result<std::map<std::string, FilterSet>> make_filters(const Profiles& profiles,
                                                      FilterStore& store) {
  std::map<std::string, FilterSet> made;
  for (const Profile& profile : profiles.all()) {
    auto filters = store.get_all(profile.filters);
    if (!filters.ok())
      return Error{filters.error().code,
                   concat("profile ", profile.name, ": ", filters.error().message)};
    made[profile.name] = std::move(filters).value();
  }
  return made;
}

std::vector<std::string> listed_names(const std::vector<std::string>& names,
                                      const Profiles& profiles, ProfileListing listing) {
  std::vector<std::string> all = names;
  if (listing == ProfileListing::off) return all;
  for (const Profile& profile : profiles.all()) {
    std::string name = concat(names.front(), ":", profile.name);
    if (std::ranges::find(all, name) == all.end()) all.push_back(std::move(name));
  }
  return all;
}

std::string shown_name(std::string_view asked, const std::vector<std::string>& names,
                       const std::vector<std::string>& unlisted) {
  for (const std::string& name : unlisted) {
    if (asked == name) return names.front();
    if (asked.starts_with(name) && asked[name.size()] == ':')
      return concat(names.front(), asked.substr(name.size()));
  }
  return std::string(asked);
}

const Profile* profile_of(std::string_view model, const std::vector<std::string>& names,
                          const Profiles& profiles) {
  const auto has = [&](std::string_view name) {
    return std::ranges::find(names, name) != names.end();
  };
  if (has(model)) return nullptr;
  const size_t colon = model.rfind(':');
  if (colon != std::string_view::npos && !has(model.substr(0, colon))) return nullptr;
  return profiles.find(colon == std::string_view::npos ? model : model.substr(colon + 1));
}

SaysThinking says_thinking(Api api, const Json& body) {
  if (api == Api::completions) return SaysThinking::cannot;
  const Json* kwargs = body.find("chat_template_kwargs");
  const Json* reasoning = body.find("reasoning");
  bool says = kwargs != nullptr && said(*kwargs, "enable_thinking") != nullptr;
  if (api == Api::messages)
    says |= said(body, "thinking") != nullptr;
  else
    says |= said(body, "enable_thinking") != nullptr || said(body, "reasoning_effort") != nullptr ||
            (reasoning != nullptr && said(*reasoning, "effort") != nullptr);
  return says ? SaysThinking::yes : SaysThinking::no;
}

void apply_profile(const Profile& profile, SaysThinking said_itself, Json& chat) {
  for (const ProfileNumber& row : kNumbers) apply_number(profile, row, chat);
  if (said_itself == SaysThinking::cannot) return;
  apply_thinking(profile, said_itself, chat);
  if (profile.template_kwargs.as_object().empty()) return;
  Json* kwargs = object_in(chat, "chat_template_kwargs");
  if (kwargs == nullptr) return;
  for (const auto& [key, value] : profile.template_kwargs.as_object())
    if (kwargs->find(key) == nullptr || profile.locks("template_kwargs")) kwargs->set(key, value);
}

}  // namespace nibble
