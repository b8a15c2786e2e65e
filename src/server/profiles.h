// Profiles: model names that stand for a way of asking: sampling and thinking as the model's makers
// advise for a kind of work. `NAME:PROFILE` or the profile's name alone; what a request says itself
// wins.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "server/generation_request.h"

namespace nibble {

struct Profile {
  std::string_view name;
  double temperature = 1.0;
  double top_p = 1.0;
  int32_t top_k = 0;
  double min_p = 0.0;
  double presence_penalty = 0.0;
  double repetition_penalty = 1.0;
  bool thinking = true;
};

/// The built-in ones: the cards of Qwen3.5 and Qwen3.6.
std::span<const Profile> built_in_profiles();

/// Every name that requests may use: the model's own, then each with each profile, then the
/// profiles.
std::vector<std::string> servable_names(const std::vector<std::string>& names);

/// The profile that `model` asks for; nothing: none, or the name is not known.
const Profile* profile_of(std::string_view model, const std::vector<std::string>& names);

/// Adds what the profile says and the body, a request of `api`, does not.
void apply_profile(const Profile& profile, Api api, Json& body);

}  // namespace nibble
