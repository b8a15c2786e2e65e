// The plain face of HTTP: what a handler gets and what it answers with. No library types.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/http/byte_budget.h"

namespace nibble {

struct HttpHeader {
  std::string name;  // lower case in requests
  std::string value;
};

/// The socket through which a request came.
enum class Entrance : uint8_t { clients, admin };

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // without the query, not decoded
  std::vector<HttpHeader> headers;
  std::string body;
  std::shared_ptr<ByteBudget::Share> body_share;  // share of the memory for bodies; empty: none
  std::string client;  // the address of the other end; empty: a Unix socket, or none
  Entrance entrance = Entrance::clients;

  /// The value of a header given in lower case, or empty.
  std::string_view header(std::string_view name) const {
    for (const HttpHeader& header : headers)
      if (header.name == name) return header.value;
    return {};
  }
  /// The values of all headers of that name, in their order, with a comma between them, as RFC 9110
  /// (5.3) reads a list that is sent in several lines.
  std::string header_list(std::string_view name) const {
    std::string list;
    for (const HttpHeader& header : headers) {
      if (header.name != name) continue;
      if (!list.empty()) list += ',';
      list += header.value;
    }
    return list;
  }
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<HttpHeader> headers;
};

/// One request in flight. All calls on the server's own thread; calls after the end, or after the
/// client has gone, do nothing. Exactly one of respond() or start_stream() begins the answer.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  /// A whole answer.
  virtual void respond(HttpResponse response) = 0;
  /// An answer in pieces; `response.body` is the first piece.
  virtual void start_stream(HttpResponse response) = 0;
  virtual void write(std::string piece) = 0;
  virtual void finish_stream() = 0;
  /// Called once if the client goes away, or reads too slowly, before the answer is complete.
  virtual void on_gone(std::function<void()> callback) = 0;
};

using HttpHandler = std::function<void(HttpRequest, std::shared_ptr<HttpExchange>)>;

}  // namespace nibble
