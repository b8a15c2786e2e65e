// Paths, types and headers of the page's files.
#include "server/web/web_assets.h"

#include <algorithm>
#include <string>

namespace nibble {

namespace {

/// Scripts, styles and connections of this server only; no frames, forms, plugins or inline code.
constexpr std::string_view kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

std::string_view content_type_of(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".js")) return "text/javascript; charset=utf-8";
  if (name.ends_with(".svg")) return "image/svg+xml";
  return "application/json";
}

}  // namespace

const EmbeddedFile* web_file(std::string_view path) {
  constexpr std::string_view kAssets = "/assets/";
  std::string_view name;
  if (path == "/") name = "index.html";
  if (path == "/docs") name = "docs.html";
  if (path == "/openapi.json") name = "openapi.json";
  if (path.starts_with(kAssets)) name = path.substr(kAssets.size());
  const auto files = embedded_files();
  const auto found = std::ranges::find(files, name, &EmbeddedFile::name);
  return found == files.end() ? nullptr : &*found;
}

HttpResponse web_response(const EmbeddedFile& file, std::string_view if_none_match) {
  HttpResponse response{.content_type = std::string(content_type_of(file.name))};
  response.headers = {{"ETag", std::string(file.etag)},
                      {"Cache-Control", "no-cache"},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"},
                      {"Content-Security-Policy", std::string(kPolicy)}};
  if (if_none_match.find(file.etag) != std::string_view::npos)
    response.status = 304;
  else
    response.body = file.body;
  return response;
}

}  // namespace nibble
