// LoadingDoor: listens while the model loads: probes learn how far it is, everything else is a 503.
// Then the server takes the sockets over, with the connections that are open.
#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "server/http/http_server.h"

namespace nibble {

class LoadingDoor {
 public:
  /// `progress` tells the part that is done, 0 to 1; it is called on a thread of its own. Errors:
  /// those of HttpServer::listen.
  static Result<std::shared_ptr<LoadingDoor>> open(const HttpOptions& options,
                                                   std::function<double()> progress);
  ~LoadingDoor();
  LoadingDoor(const LoadingDoor&) = delete;
  LoadingDoor& operator=(const LoadingDoor&) = delete;

  uint16_t port() const { return http_->port(); }
  /// Once. The server listens, and nobody runs it.
  std::unique_ptr<HttpServer> hand_over(HttpHandler handler);

  /// For open().
  explicit LoadingDoor(std::function<double()> progress) : progress_(std::move(progress)) {}

 private:
  void answer(const HttpRequest& request, HttpExchange& exchange) const;
  void close();

  std::function<double()> progress_;
  std::unique_ptr<HttpServer> http_;
  std::thread thread_;
};

}  // namespace nibble
