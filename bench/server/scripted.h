// What the server benchmarks share: a server over the scripted backend, and a client's sockets.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/server.h"
#include "server/test_client.h"
#include "server/test_model.h"

namespace nibble::bench {

inline EngineSettings engine_settings(int sequences, int tokens) {
  const int32_t context = 256 + tokens;
  return {.pools = {.pages = sequences * (context / kPageTokens + 2),
                    .state_slots = 2 * sequences,
                    .rows_max = 64 + 4 * sequences},
          .sequences_max = sequences,
          .context_max = context};
}

/// Any connections, passes of `pass_ms` that say 'x'.
inline std::unique_ptr<Server> start_server(const EngineSettings& settings, int pass_ms) {
  ServerOptions options;
  options.http.port = 0;
  options.http.limits.connections_max = options.http.limits.connections_per_address_max = 1 << 16;
  ServedModel model = testing::served_model();
  model.context_max = settings.context_max;
  auto server =
      Server::start(std::make_unique<testing::ScriptedBackend>(std::vector<int32_t>{},
                                                               std::chrono::milliseconds(pass_ms)),
                    testing::model_config(), settings, std::move(model), std::move(options));
  CHECK(server.ok(), server.error().message);
  return std::move(server).value();
}

inline int connect_to(uint16_t port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK(::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  return socket;
}

inline void send_text(int socket, std::string_view text) {
  CHECK(::send(socket, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
}

/// A socket that has asked for a stream of `tokens`.
inline int open_stream(uint16_t port, int tokens, int number) {
  const int socket = connect_to(port);
  send_text(
      socket,
      testing::post("/v1/chat/completions",
                    concat(R"({"stream":true,"temperature":0,"ignore_eos":true,"max_tokens":)",
                           tokens, R"(,"chat_template_kwargs":{"enable_thinking":false},)",
                           R"("messages":[{"role":"user","content":"stream )", number, R"("}]})")));
  return socket;
}

/// Pieces of content in what has come.
inline int count_pieces(std::string_view text) {
  int count = 0;
  for (size_t at = text.find("\"content\":\"x"); at != std::string_view::npos;
       at = text.find("\"content\":\"x", at + 1))
    ++count;
  return count;
}

}  // namespace nibble::bench
