// Reading and deleting stored responses.
#include "server/routes/response_routes.h"

#include <algorithm>

#include "server/server_state.h"

namespace nibble {

namespace {

constexpr std::string_view kItems = "/input_items";

void not_found(const ServerState& server, const Call& call, std::string_view id) {
  call.exchange->respond(ApiError{
      .status = 404,
      .message = concat(
          "there is no stored response ", Json(id.substr(0, 100)).dump(),
          server.responses.enabled() ? "" : "; this server was started without --response-store"),
      .code = "not_found"}
                             .response());
}

/// Lists items as OpenAI does: the newest first.
Json items_list(Json items) {
  Json::Array& all = items.as_array();
  std::ranges::reverse(all);
  const auto id = [](const Json& item) {
    const Json* found = item.find("id");
    return found != nullptr ? *found : Json();
  };
  Json list = json_object({{"object", Json("list")},
                           {"first_id", all.empty() ? Json() : id(all.front())},
                           {"last_id", all.empty() ? Json() : id(all.back())},
                           {"has_more", Json(false)}});
  list.set("data", std::move(items));
  return list;
}

}  // namespace

void answer_stored_response(ServerState& server, Call call) {
  std::string id = call.request.path.substr(call.route->path.size());
  const uint64_t tenant = server.client_of(call).tenant;
  const bool items = id.ends_with(kItems);
  if (items) id.resize(id.size() - kItems.size());
  auto found = items ? server.responses.input(tenant, id) : server.responses.response(tenant, id);
  if (!found) return not_found(server, call, id);
  call.exchange->respond({.body = (items ? items_list(*std::move(found)) : *found).dump()});
}

void answer_delete_response(ServerState& server, Call call) {
  const std::string id = call.request.path.substr(call.route->path.size());
  if (!server.responses.remove(server.client_of(call).tenant, id))
    return not_found(server, call, id);
  call.exchange->respond(
      {.body =
           json_object({{"id", Json(id)}, {"object", Json("response")}, {"deleted", Json(true)}})
               .dump()});
}

}  // namespace nibble
