// Profiles: model names that stand for a way of asking: sampling, thinking, limits, priority. Used
// as `NAME:PROFILE` or under the profile's name alone. What a request says itself wins, unless
// locked. They come from here or from a file (cli/serving/profiles_file.h); all share one model and
// one cache.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "server/filters/filter_store.h"

namespace nibble {

enum class Api : uint8_t;

/// A number that a profile may say: its key in a file, the request field it fills, its range.
struct ProfileNumber {
  enum class Kind : uint8_t { whole, real };
  std::string_view key;
  std::string_view field;
  Kind kind = Kind::real;
  double least = 0.0;
  double most = 0.0;
};
std::span<const ProfileNumber> profile_numbers();

struct Profile {
  std::string name;
  Json numbers = Json(Json::Object{});  // by key, rows of profile_numbers(); absent: not said
  std::optional<bool> thinking;
  Json template_kwargs = Json(Json::Object{});
  std::vector<std::string>
      filters;  // specs, beside the server's; nothing a request says changes it
  /// Keys whose values hold against the request's. max_tokens and thinking_budget are bounds then:
  /// the smaller counts.
  std::vector<std::string> locked;

  bool locks(std::string_view key) const;
  std::optional<int32_t> max_tokens() const;
};

class Profiles {
 public:
  /// The built-in ones: the cards of Qwen3.5 and Qwen3.6, and the thinking switch alone.
  Profiles();
  /// Replaces one of the same name.
  void add(Profile profile);
  /// The one that holds where no other is named. It must be there.
  void set_default(std::string_view name);

  const Profile* find(std::string_view name) const;
  const Profile* standing() const;  // the default; nothing: none
  std::span<const Profile> all() const { return profiles_; }

 private:
  std::vector<Profile> profiles_;
  std::string default_;
};

/// Those of each profile, by its name. Errors: those of FilterStore::get, with the profile's name.
Result<std::map<std::string, FilterSet>> make_filters(const Profiles& profiles, FilterStore& store);

/// The profiles that GET /v1/models lists: each once, as NAME:PROFILE, or none.
enum class ProfileListing : uint8_t { off, on };

/// The names that are listed: the model's own, then the first with each profile.
std::vector<std::string> listed_names(const std::vector<std::string>& names,
                                      const Profiles& profiles, ProfileListing listing);

/// `asked` with the first of `names` in place of one of `unlisted`: "/models/x:p" is "x:p".
std::string shown_name(std::string_view asked, const std::vector<std::string>& names,
                       const std::vector<std::string>& unlisted);

/// The profile that `model` names; nothing: none, or the name is not known.
const Profile* profile_of(std::string_view model, const std::vector<std::string>& names,
                          const Profiles& profiles);

/// Says if a request, as it came, states that the model is to think. cannot: a raw prompt.
enum class SaysThinking : uint8_t { no, yes, cannot };
SaysThinking says_thinking(Api api, const Json& body);

/// Adds what the profile says and `chat`, a body in the words of chat completions, does not; what
/// is locked it replaces. max_tokens is the caller's, since it gives way to the context.
void apply_profile(const Profile& profile, SaysThinking said, Json& chat);

}  // namespace nibble
