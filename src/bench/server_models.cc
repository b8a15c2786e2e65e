// GET /v1/models, once.
#include "bench/http_target.h"

namespace nibble {

namespace {

struct Fetched {
  int status = 0;
  std::string body;
  std::string trouble;  // why there is no answer
};

Result<Fetched> fetch(const LoadTarget& target, std::string_view path) {
  asio::io_context io{1};
  Connections connections(io, TRY(resolve(io, target.url)));
  Fetched fetched;
  constexpr size_t kBytesMax = size_t{4} << 20;
  constexpr double kSeconds = 10.0;
  const auto stream = std::make_shared<HttpStream>(
      connections, message_for(target, http::verb::get, path),
      std::chrono::duration<double>(kSeconds),
      StreamCalls{.status = [&](int status) { fetched.status = status; },
                  .bytes =
                      [&](std::string_view bytes) {
                        if (fetched.body.size() < kBytesMax) fetched.body += bytes;
                      },
                  .end =
                      [&](StreamEnd end, const std::string& reason) {
                        if (end != StreamEnd::complete)
                          fetched.trouble = concat("no answer (", reason, ")");
                      }});
  stream->start();
  io.run();
  return fetched;
}

}  // namespace

Result<std::string> first_model(const LoadTarget& target) {
  constexpr std::string_view kPath = "/v1/models";
  const Fetched fetched = TRY(fetch(target, kPath));
  const std::string where =
      concat("http://", target.url.host, ":", target.url.port, path_below(target.url, kPath));
  if (!fetched.trouble.empty())
    return make_error(ErrorCode::io, {.what = where, .found = fetched.trouble});
  constexpr int kUnauthorised = 401;
  if (fetched.status == kUnauthorised)
    return make_error(ErrorCode::invalid_argument,
                      {.what = concat(where, " wants a key"), .advice = "give it with --api-key"});
  const auto json = parse_json(fetched.body, "the list of models");
  const Json* data = json.ok() ? json.value().find("data") : nullptr;
  const bool listed = data != nullptr && data->is_array() && !data->as_array().empty();
  const Json* id = listed ? data->as_array().front().find("id") : nullptr;
  if (id != nullptr && id->is_string()) return id->as_string();
  return make_error(ErrorCode::unsupported, {.what = where,
                                             .expected = "a list of models",
                                             .found = concat("status ", fetched.status),
                                             .advice = "name the model with --model"});
}

}  // namespace nibble
