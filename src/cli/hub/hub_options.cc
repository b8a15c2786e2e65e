// Environment and token file as settings. The network itself is src/hub.
#include "cli/hub/hub_options.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>

#include "base/file.h"
#include "cli/options/folders.h"
#include "cli/options/hub_cache.h"
#include "hub/hub_replies.h"
#include "hub/url_origin.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kTokenBytesMax = 4096;

const char* variable_of(const char* name) { return std::getenv(name); }

std::string text_of(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// The words that huggingface_hub takes for yes.
bool is_on(const char* name) {
  std::string value = text_of(name);
  for (char& c : value) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return value == "1" || value == "ON" || value == "YES" || value == "TRUE";
}

std::string stripped(std::string text) {
  const auto blank = [](char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; };
  while (!text.empty() && blank(text.back())) text.pop_back();
  text.erase(0, static_cast<size_t>(std::ranges::find_if_not(text, blank) - text.begin()));
  return text;
}

/// The file that `hf auth login` writes: HF_TOKEN_PATH, else `token` beside the cache's folder.
std::string token_of_file() {
  fs::path path = text_of("HF_TOKEN_PATH");
  if (path.empty()) path = hub_home_folder(variable_of) / "token";
  const auto text = read_text_file(path, kTokenBytesMax);
  return text.ok() ? stripped(text.value()) : "";
}

std::string find_token(const Arguments& arguments) {
  if (const auto given = arguments.text(kTokenOption.name)) return stripped(*given);
  if (is_on("HF_HUB_DISABLE_IMPLICIT_TOKEN")) return "";
  for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"})
    if (std::string token = stripped(text_of(name)); !token.empty()) return token;
  return token_of_file();
}

/// It becomes a line of a request's head.
Result<void> check_token(std::string_view token) {
  const bool fine = token.size() <= kTokenBytesMax &&
                    std::ranges::all_of(token, [](char c) { return c > ' ' && c < 0x7F; });
  if (fine) return {};
  return make_error(ErrorCode::invalid_argument,
                    {.what = "access token",
                     .expected = "printable ASCII without blanks, such as hf_...",
                     .found = "other characters"});
}

/// Trusted authorities: as the environment says, else where systems keep them; libcurl knows the
/// place of one system alone.
std::string find_certificates() {
  for (const char* name : {"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"})
    if (std::string path = text_of(name); !path.empty()) return path;
  static constexpr std::array kPlaces = {"/etc/ssl/certs/ca-certificates.crt",
                                         "/etc/pki/tls/certs/ca-bundle.crt",
                                         "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
                                         "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"};
  std::error_code failure;
  for (const char* place : kPlaces)
    if (fs::exists(place, failure)) return place;
  return "";
}

}  // namespace

Result<HubName> hub_model_of(const Arguments& arguments, const std::string& word) {
  auto name = parse_hub_name(word);
  if (!name) name = TRY(find_hub_alias(hub_cache(), word));
  if (!name)
    return make_error(ErrorCode::invalid_argument,
                      {.what = concat("model \"", word, "\""),
                       .expected = "ORG/NAME or ORG/NAME@REVISION, as on the hub",
                       .found = "something else"});
  const std::string revision = arguments.text(kRevisionOption.name).value_or("");
  if (!revision.empty() && !name->revision.empty() && name->revision != revision)
    return make_error(ErrorCode::invalid_argument,
                      {.what = word,
                       .expected = "one revision",
                       .found = concat(name->revision, " and --revision ", revision)});
  if (name->revision.empty()) name->revision = revision;
  TRY(check_hub_revision(*name));
  return *name;
}

Result<HubSettings> hub_settings(const Arguments& arguments) {
  HubSettings settings;
  if (const std::string endpoint = text_of("HF_ENDPOINT"); !endpoint.empty())
    settings.endpoint = endpoint;
  if (const auto given = arguments.text(kEndpointOption.name)) settings.endpoint = *given;
  TRY(origin_of(settings.endpoint));
  settings.token = find_token(arguments);
  TRY(check_token(settings.token));
  settings.certificates = find_certificates();
  constexpr uint64_t kStallSecondsMax = 3600;
  const auto seconds = parse_byte_count(text_of("HF_HUB_DOWNLOAD_TIMEOUT"));
  if (seconds && *seconds > 0)
    settings.stall_seconds = static_cast<int64_t>(std::min(*seconds, kStallSecondsMax));
  return settings;
}

bool hub_is_offline() { return is_on("HF_HUB_OFFLINE") || is_on("TRANSFORMERS_OFFLINE"); }

fs::path hub_cache() { return hub_cache_folder(variable_of); }

std::string token_warning(const HubSettings& settings) {
  const auto origin = origin_of(settings.endpoint);
  if (settings.token.empty() || !origin.ok() || !origin.value().starts_with("http://")) return "";
  const std::string_view host = std::string_view(origin.value()).substr(7);
  if (host.starts_with("127.") || host.starts_with("localhost:") || host.starts_with("[::1]"))
    return "";
  return concat("the access token goes unencrypted to ", settings.endpoint,
                ": https:// would hide it\n");
}

}  // namespace nibble
