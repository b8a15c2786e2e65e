// The rules of what is an address here: http or https, a host, no user and password.
#include "hub/url_origin.h"

#include <curl/curl.h>

#include <cctype>
#include <memory>

#include "base/json.h"

namespace nibble {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

struct FreeUrl {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};
using Url = std::unique_ptr<CURLU, FreeUrl>;

std::string part_of(const Url& url, CURLUPart part, unsigned flags) {
  char* text = nullptr;
  if (curl_url_get(url.get(), part, &text, flags) != CURLUE_OK || text == nullptr) return {};
  std::string out = text;
  curl_free(text);
  return out;
}

Error bad_url(std::string_view url) {
  constexpr size_t kShownMax = 200;
  return make_error(ErrorCode::invalid_argument,
                    {.what = "address",
                     .expected = "http:// or https:// with a host and without a user",
                     .found = Json(url.substr(0, kShownMax)).dump()});
}

Result<Url> parsed_url(const std::string& text) {
  Url url(curl_url());
  if (curl_url_set(url.get(), CURLUPART_URL, text.c_str(), CURLU_DISALLOW_USER) != CURLUE_OK)
    return bad_url(text);
  const std::string scheme = part_of(url, CURLUPART_SCHEME, 0);
  if ((scheme != "http" && scheme != "https") || part_of(url, CURLUPART_HOST, 0).empty())
    return bad_url(text);
  return url;
}

}  // namespace

Result<std::string> origin_of(const std::string& url) {
  const Url parsed = TRY(parsed_url(url));
  return concat(lower(part_of(parsed, CURLUPART_SCHEME, 0)), "://",
                lower(part_of(parsed, CURLUPART_HOST, 0)), ":",
                part_of(parsed, CURLUPART_PORT, CURLU_DEFAULT_PORT));
}

Result<std::string> resolved_url(const std::string& url, const std::string& target) {
  const Url parsed = TRY(parsed_url(url));
  const bool secret = part_of(parsed, CURLUPART_SCHEME, 0) == "https";
  if (curl_url_set(parsed.get(), CURLUPART_URL, target.c_str(), CURLU_DISALLOW_USER) != CURLUE_OK)
    return bad_url(target);
  const std::string whole = part_of(parsed, CURLUPART_URL, 0);
  const std::string origin = TRY(origin_of(whole));
  if (!secret || part_of(parsed, CURLUPART_SCHEME, 0) == "https") return whole;
  return make_error(ErrorCode::corrupt, {.what = concat("redirect of ", url),
                                         .expected = "https, as before",
                                         .found = concat("http, at ", origin)});
}

}  // namespace nibble
