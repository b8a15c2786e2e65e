// The web page and the documents of the API, compiled into the program: which path is which file,
// and the headers that keep a hostile answer from doing anything. They hold nothing of this server.
#pragma once

#include <span>
#include <string_view>

#include "server/http/http.h"

namespace nibble {

/// A file of src/server/web as the build embeds it.
struct EmbeddedFile {
  std::string_view name;
  std::string_view etag;  // a quoted hash of the bytes
  std::string_view body;
};
std::span<const EmbeddedFile> embedded_files();

/// The file that `path` stands for: "/", "/docs", "/openapi.json" or "/assets/NAME"; else null.
const EmbeddedFile* web_file(std::string_view path);
/// The file with its headers; 304 without a body if the client has it.
HttpResponse web_response(const EmbeddedFile& file, std::string_view if_none_match);

}  // namespace nibble
