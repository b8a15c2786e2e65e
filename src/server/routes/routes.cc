// One row per route; add a row here, a function in route_handlers or a file of its own.
#include "server/routes/routes.h"

#include <algorithm>

#include "server/routes/request_routes.h"
#include "server/routes/response_routes.h"
#include "server/routes/route_handlers.h"
#include "server/routes/text_routes.h"

namespace nibble {

namespace {

constexpr Route of(Api api, Route route) {
  route.api = api;
  return route;
}

constexpr Route kRoutes[] = {
    {"GET", "/health", answer_health, Access::open},
    {"GET", "/live", answer_live, Access::open},
    {"GET", "/ready", answer_health, Access::open},
    {"GET", "/version", answer_version},
    {"GET", "/v1/models", answer_models},
    {"GET", "/v1/models/", answer_one_model},
    {"POST", "/v1/requests/", answer_cancel, Access::keyed, Audience::clients,
     BodyRule::json_or_none, "/cancel"},
    of(Api::responses, {"POST", "/v1/responses/", answer_cancel, Access::keyed, Audience::clients,
                        BodyRule::json_or_none, "/cancel"}),
    of(Api::responses, {"GET", "/v1/responses/", answer_stored_response, Access::keyed,
                        Audience::clients, BodyRule::json, "/input_items"}),
    of(Api::responses, {"GET", "/v1/responses/", answer_stored_response}),
    of(Api::responses, {"DELETE", "/v1/responses/", answer_delete_response}),
    of(Api::chat, {"POST", "/v1/chat/completions", answer_generation}),
    of(Api::completions, {"POST", "/v1/completions", answer_generation}),
    of(Api::messages, {"POST", "/v1/messages", answer_generation}),
    of(Api::messages, {"POST", "/v1/messages/count_tokens", answer_text<count_tokens>}),
    of(Api::responses, {"POST", "/v1/responses", answer_generation}),
    of(Api::responses, {"POST", "/v1/responses/input_tokens", answer_text<count_tokens>}),
    {"POST", "/tokenize", answer_text<tokenize>},
    {"POST", "/detokenize", answer_text<detokenize>},
    {"POST", "/apply-template", answer_text<apply_template>},
    {"GET", "/tokenizer_info", answer_tokenizer_info},
    {"POST", "/v1/embeddings", answer_embeddings},
    {"GET", "/load", answer_load},
    {"GET", "/metrics", answer_metrics},
    {"GET", "/stats", answer_stats},
    {"GET", "/", answer_web, Access::open},
    {"GET", "/assets/", answer_web, Access::open},
    {"GET", "/docs", answer_web, Access::open},
    {"GET", "/openapi.json", answer_web, Access::open},
    {"GET", "/is_sleeping", answer_is_sleeping},
    {"POST", "/cancel_all", answer_cancel_all, Access::keyed, Audience::admin,
     BodyRule::json_or_none},
    {"POST", "/sleep", answer_sleep, Access::keyed, Audience::admin, BodyRule::json_or_none},
    {"POST", "/wake_up", answer_wake_up, Access::keyed, Audience::admin, BodyRule::json_or_none},
};

enum class Fit : uint8_t { none, folder, tail, whole };

Fit fit_of(const Route& route, std::string_view path) {
  if (route.path.size() == 1 || !route.path.ends_with('/'))
    return path == route.path ? Fit::whole : Fit::none;
  const bool below = path.starts_with(route.path) && path.ends_with(route.tail) &&
                     path.size() > route.path.size() + route.tail.size();
  if (!below) return Fit::none;
  return route.tail.empty() ? Fit::folder : Fit::tail;
}

bool is_json(std::string_view content_type) {
  std::string type(content_type.substr(0, content_type.find(';')));
  while (type.ends_with(' ')) type.pop_back();
  std::ranges::transform(type, type.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; });
  return type == "application/json" ||
         (type.starts_with("application/") && type.ends_with("+json"));
}

Api api_of(std::string_view path) {
  const Route* longest = nullptr;
  for (const Route& row : kRoutes)
    if (path.starts_with(row.path) &&
        (longest == nullptr || row.path.size() > longest->path.size()))
      longest = &row;
  return longest != nullptr ? longest->api : Api::chat;
}

}  // namespace

std::span<const Route> server_routes() { return kRoutes; }

RouteChoice find_route(std::string_view method, std::string_view path, Door door) {
  if (method == "HEAD") method = "GET";
  RouteChoice choice{.api = api_of(path)};
  Fit best = Fit::none;
  for (const Route& candidate : kRoutes)
    if (answers_at(candidate, door)) best = std::max(best, fit_of(candidate, path));
  for (const Route& candidate : kRoutes) {
    if (best == Fit::none || !answers_at(candidate, door) || fit_of(candidate, path) != best)
      continue;
    choice.allowed += concat(choice.allowed.empty() ? "" : ", ", candidate.method);
    if (candidate.method == method) choice.route = &candidate;
  }
  for (const Route& row : kRoutes)
    if (best == Fit::none && row.audience == Audience::admin && fit_of(row, path) != Fit::none)
      choice.elsewhere = RouteChoice::Elsewhere::admin;
  return choice;
}

bool answers_at(const Route& route, Door door) {
  if (door == Door::clients_and_admin) return true;
  if (door == Door::clients) return route.audience == Audience::clients;
  return route.audience == Audience::admin || route.method == "GET";
}

/// The path without doubled slashes, one at its end, or /v1 twice, as base addresses with a slash
/// or with /v1 make it.
std::string plain_path(std::string_view path) {
  std::string plain;
  for (const char c : path)
    if (c != '/' || !plain.ends_with('/')) plain += c;
  if (plain.size() > 1 && plain.ends_with('/')) plain.pop_back();
  size_t begin = 0;
  while (std::string_view(plain).substr(begin).starts_with("/v1/v1/")) begin += 3;
  return plain.substr(begin);
}

ApiError no_such_path(std::string_view path) {
  std::string message = concat("no such path: ", path.substr(0, 100));
  const auto is_here = [](const std::string& meant) {
    return !find_route("POST", meant, Door::clients).allowed.empty();
  };
  const std::string plain = plain_path(path);
  if (is_here(concat("/v1", plain)))
    message += concat("; it is /v1", plain, " here: add /v1 to the client's base address");
  else if (is_here(plain))
    message += concat("; it is ", plain, " here: take what is too much off the client's address");
  return {.status = 404, .message = std::move(message), .code = "not_found"};
}

std::optional<ApiError> refusal_of(const HttpRequest& request, const RouteChoice& choice,
                                   Caller caller) {
  const Route* route = choice.route;
  if ((route == nullptr || route->access == Access::keyed) && caller == Caller::unknown)
    return ApiError{.status = 401,
                    .type = "authentication_error",
                    .message = "a valid API key is needed: send Authorization: Bearer KEY",
                    .code = "invalid_api_key"};
  const std::string_view path = std::string_view(request.path).substr(0, 100);
  if (choice.elsewhere == RouteChoice::Elsewhere::admin)
    return ApiError{.status = 403,
                    .type = "permission_error",
                    .message = concat(path,
                                      " is a route of the administrator: it answers on the "
                                      "socket of --admin-socket, and here only if the server was "
                                      "started with --enable-admin-routes"),
                    .code = "permission_denied"};
  if (choice.allowed.empty()) return no_such_path(path);
  if (route == nullptr)
    return ApiError{
        .status = 405,
        .message = concat("method ", request.method.substr(0, 20), " is not allowed on ", path)};
  const bool bodiless = request.body.empty() && route->body == BodyRule::json_or_none;
  if (route->method == "POST" && !bodiless && !is_json(request.header("content-type")))
    return ApiError{.status = 415, .message = "send the body as Content-Type: application/json"};
  return std::nullopt;
}

}  // namespace nibble
