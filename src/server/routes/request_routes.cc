// Ids are the client's x-request-id, the one the server gave, or the answer's ("chatcmpl-...").
#include "server/routes/request_routes.h"

#include <algorithm>

#include "server/answer/answer_writer.h"
#include "server/server_state.h"

namespace nibble {

namespace {

constexpr std::string_view kCancel = "/cancel";

ApiError not_running(std::string_view id) {
  return {.status = 404,
          .message = concat("no running request has the id ", Json(id.substr(0, 100)).dump()),
          .code = "not_found"};
}

/// Those of one client; others' look as if they were not there.
std::vector<std::shared_ptr<Generation>> running(const ServerState& server, uint64_t tenant,
                                                 std::string_view id) {
  std::vector<std::shared_ptr<Generation>> found;
  for (const auto& [sequence, live] : server.sequences) {
    const auto& generation = live.generation;
    const bool meant = generation->tenant() == tenant && generation->is_called(id);
    if (!meant || generation->done()) continue;
    if (found.empty() || found.back() != generation) found.push_back(generation);
  }
  return found;
}

}  // namespace

void answer_cancel(ServerState& server, Call call) {
  const Api api = call.route->api;
  std::string_view id = std::string_view(call.request.path).substr(call.route->path.size());
  const bool cancel = id.ends_with(kCancel) && id.size() > kCancel.size();
  if (cancel) id.remove_suffix(kCancel.size());
  const auto found = cancel ? running(server, server.client_of(call).tenant, id)
                            : std::vector<std::shared_ptr<Generation>>();
  if (found.empty()) return call.exchange->respond(error_response(api, not_running(id)));
  Json answer = json_object({{"id", Json(id)}, {"cancelled", Json(found.size())}});
  if (api == Api::responses && found.front()->api() == Api::responses)
    answer = found.front()->so_far("cancelled");
  for (const auto& generation : found) generation->cancel();
  call.exchange->respond({.body = answer.dump()});
}

void answer_cancel_all(ServerState& server, Call call) {
  std::vector<std::shared_ptr<Generation>> found;
  for (const auto& [sequence, live] : server.sequences)
    if (!live.generation->done() && std::ranges::find(found, live.generation) == found.end())
      found.push_back(live.generation);
  for (const auto& generation : found) generation->cancel();
  call.exchange->respond({.body = json_object({{"cancelled", Json(found.size())}}).dump()});
}

}  // namespace nibble
