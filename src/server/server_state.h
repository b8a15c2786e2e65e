// ServerState: what handlers of routes share. Private to the server; all of it on the server's
// thread, except where a member says otherwise.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "server/generation.h"
#include "server/metrics.h"
#include "server/routes.h"
#include "server/server.h"
#include "server/task_thread.h"

namespace nibble {

struct ServerState {
  ServerState(ServedModel served, ServerOptions chosen)
      : model(std::move(served)),
        options(std::move(chosen)),
        responses(options.response_store) {}

  /// Finds the route and calls its handler, or refuses.
  void handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange);
  Caller caller_of(const HttpRequest& request) const;
  ClientFacts client_of(const HttpRequest& request) const;
  /// Submits a request to the engine; its events come by pump().
  void start(GenerationRequest request, std::shared_ptr<HttpExchange> exchange,
             std::string request_id);
  void pump();
  void forget(const std::shared_ptr<Generation>& generation);
  void ping();
  void terminate();
  void check_drained();

  ServedModel model;
  ServerOptions options;
  std::unique_ptr<HttpServer> http;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<TaskThread> compiler;  // of structures, which may take seconds
  std::unique_ptr<TaskThread> parser;
  std::map<uint64_t, std::shared_ptr<Generation>> sequences;  // live ones
  Metrics metrics;
  ResponseStore responses;
  int signals = 0;
};

}  // namespace nibble
