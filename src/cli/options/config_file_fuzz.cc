// Fuzz entry: one configuration file (TOML). Each value that is read belongs to an option of the
// verb and names its line; each error is a line that names the file, and never a secret.
#include "base/check.h"
#include "cli/options/config_file.h"

namespace {

constexpr std::string_view kSecret = "a-secret-of-the-fuzz-entry";

nibble::Result<std::string> read_no_file(const std::string& path) {
  if (path.empty()) return nibble::Error{nibble::ErrorCode::not_found, "no such file"};
  return std::string(kSecret);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto settings = nibble::parse_config(text, "fuzz", nibble::kServeVerb, read_no_file);
  for (const nibble::ConfigSetting& setting : settings.values) {
    CHECK(nibble::find_option(nibble::kServeVerb, setting.option) != nullptr, setting.option);
    CHECK(setting.place.starts_with("fuzz line "), setting.place);
    CHECK(setting.text.find('\0') == std::string::npos, setting.option);
  }
  CHECK(settings.errors.find(kSecret) == std::string::npos, settings.errors);
  size_t begin = 0;
  while (begin < settings.errors.size()) {
    const std::string line =
        settings.errors.substr(begin, settings.errors.find('\n', begin) - begin);
    CHECK(line.starts_with("fuzz"), line);
    begin += line.size() + 1;
  }
  return 0;
}
