// Fuzz entry: one file of profiles (TOML). What is read keeps to the bounds of its numbers and has
// no name twice; anything else is refused in one line.
#include <set>

#include "base/check.h"
#include "cli/serving/profiles_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto profiles = nibble::parse_profiles(text, "fuzz");
  if (!profiles.ok()) {
    CHECK(profiles.error().message.find('\n') == std::string::npos, profiles.error().message);
    return 0;
  }
  std::set<std::string> names;
  for (const nibble::Profile& profile : profiles.value().all()) {
    CHECK(!profile.name.empty(), "a profile without a name");
    CHECK(names.insert(profile.name).second, profile.name);
  }
  return 0;
}
