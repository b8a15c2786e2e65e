// Paths, headers and addresses of the server.
#include "bench/http_target.h"

namespace nibble {

std::string path_below(const HttpUrl& url, std::string_view path) {
  std::string base = url.path;
  while (base.ends_with('/')) base.pop_back();
  if (base.ends_with("/v1")) base.resize(base.size() - std::string_view("/v1").size());
  return concat(base, path);
}

HttpStream::Message message_for(const LoadTarget& target, http::verb verb, std::string_view path) {
  HttpStream::Message message{verb, path_below(target.url, path), 11};
  message.set(http::field::host, concat(target.url.host, ":", target.url.port));
  message.set(http::field::user_agent, "nibble-bench");
  if (!target.api_key.empty())
    message.set(http::field::authorization, concat("Bearer ", target.api_key));
  return message;
}

Result<Connections::Endpoints> resolve(asio::io_context& io, const HttpUrl& url) {
  beast::error_code error;
  auto found = asio::ip::tcp::resolver(io).resolve(url.host, concat(url.port), error);
  if (error)
    return make_error(ErrorCode::io,
                      {.what = concat("the host ", url.host, " (", error.message(), ")")});
  return found;
}

}  // namespace nibble
