// The table of routes: what a path answers to, who may ask, which function answers. Finding a row
// and refusing a request before its handler sees it; the handlers are in route_handlers.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "server/http/api_error.h"
#include "server/http/http.h"
#include "server/request/generation_request.h"

namespace nibble {

struct RequestRecord;
struct Route;
struct ServerState;

/// One request on its way to its handler.
struct Call {
  const Route* route;
  HttpRequest request;
  std::shared_ptr<HttpExchange> exchange;
  std::shared_ptr<RequestRecord> record;
};
/// Answers the call, now or later. On the server's thread.
using RouteHandler = void (*)(ServerState& server, Call call);

enum class Access : uint8_t { open, keyed };
/// admin: what works on the whole server, for every client at once. It answers on the admin socket,
/// and on the clients' socket only where AdminRoutes says so, whatever the key.
enum class Audience : uint8_t { clients, admin };
/// The body that a POST may have: a JSON body, or that or nothing.
enum class BodyRule : uint8_t { json, json_or_none };

/// A path and what it answers to. A path that ends in '/' takes everything below it, or with `tail`
/// what ends so. Where several rows fit, a whole path wins over one with a tail, that over a
/// folder. `api`: in whose words answers and errors are; routes of no API use those of chats.
struct Route {
  std::string_view method;
  std::string_view path;
  RouteHandler handler = nullptr;
  Access access = Access::keyed;
  Audience audience = Audience::clients;
  BodyRule body = BodyRule::json;
  std::string_view tail = {};  // "/cancel"
  Api api = Api::chat;

  /// Work for one client, which its key's limits count; not reads, not what ends other work.
  bool counted() const {
    return method == "POST" && audience == Audience::clients && body == BodyRule::json;
  }
};
/// Every route there is.
std::span<const Route> server_routes();

/// The socket at which a request came in: the clients' socket, that socket where admin routes
/// answer on it too, or the admin socket.
enum class Door : uint8_t { clients, clients_and_admin, admin };
/// Through the admin socket: admin routes and whatever reads; the file's permissions are its key.
bool answers_at(const Route& route, Door door);

/// The row of method and path, HEAD counting as GET, among those that answer at a door. `api` is
/// known without such a row too: that of the longest path of the table with which `path` begins.
struct RouteChoice {
  enum class Elsewhere : uint8_t { no, admin };  // the path has a row, but not at this door

  const Route* route = nullptr;
  std::string allowed;  // methods that the path knows, "GET, POST"; empty: no such path
  Elsewhere elsewhere = Elsewhere::no;
  Api api = Api::chat;
};
RouteChoice find_route(std::string_view method, std::string_view path, Door door = Door::clients);

/// 404. Where only /v1 is missing, as in a client's base address, it says so.
ApiError no_such_path(std::string_view path);

enum class Caller : uint8_t { unknown, known };

/// 401, 403, 404, 405 or 415. Without a key nobody learns which paths exist.
std::optional<ApiError> refusal_of(const HttpRequest& request, const RouteChoice& choice,
                                   Caller caller);

}  // namespace nibble
