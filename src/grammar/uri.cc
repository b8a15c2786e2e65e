// The algorithm of RFC 3986, 5.2.
#include "grammar/uri.h"

#include <algorithm>

namespace nibble {

namespace {

/// Takes the characters of `text` before the first of `ends`.
std::string take_until(std::string_view& text, std::string_view ends) {
  std::string taken(text.substr(0, text.find_first_of(ends)));
  text.remove_prefix(taken.size());
  return taken;
}

Uri parsed(std::string_view text) {
  Uri uri;
  if (const size_t colon = text.find(':'); colon < text.find_first_of("/?#") && colon > 0) {
    uri.scheme = std::string(text.substr(0, colon + 1));
    text.remove_prefix(colon + 1);
  }
  if (text.starts_with("//")) {
    text.remove_prefix(2);
    uri.authority = concat("//", take_until(text, "/?#"));
  }
  uri.path = take_until(text, "?#");
  uri.query = take_until(text, "#");
  if (!text.empty()) uri.fragment = std::string(text.substr(1));
  return uri;
}

/// The path without its "." and ".." (RFC 3986, 5.2.4).
std::string without_dots(std::string_view path) {
  std::string out;
  while (!path.empty()) {
    if (path.starts_with("../")) {
      path.remove_prefix(3);
    } else if (path.starts_with("./") || path.starts_with("/./")) {
      path.remove_prefix(2);
    } else if (path == "/." || path == "/..") {
      if (path == "/..") out.resize(out.rfind('/') == std::string::npos ? 0 : out.rfind('/'));
      path = "/";
    } else if (path.starts_with("/../")) {
      path.remove_prefix(3);
      out.resize(out.rfind('/') == std::string::npos ? 0 : out.rfind('/'));
    } else if (path == "." || path == "..") {
      path = {};
    } else {
      const size_t end = path.find('/', 1);
      out += path.substr(0, end);
      path.remove_prefix(std::min(end, path.size()));
    }
  }
  return out;
}

}  // namespace

Uri resolved_uri(const Uri& base, std::string_view reference) {
  Uri uri = parsed(reference);
  if (!uri.scheme.empty()) {
    uri.path = without_dots(uri.path);
    return uri;
  }
  uri.scheme = base.scheme;
  if (!uri.authority.empty()) {
    uri.path = without_dots(uri.path);
    return uri;
  }
  uri.authority = base.authority;
  if (uri.path.empty()) {
    uri.path = base.path;
    if (uri.query.empty()) uri.query = base.query;
    return uri;
  }
  const size_t folder = base.path.rfind('/');
  if (!uri.path.starts_with('/') && folder != std::string::npos)
    uri.path = concat(base.path.substr(0, folder + 1), uri.path);
  else if (!uri.path.starts_with('/') && !base.authority.empty())
    uri.path = concat("/", uri.path);
  uri.path = without_dots(uri.path);
  return uri;
}

}  // namespace nibble
