// The parts that the server benchmarks share: a server over the scripted backend, and a client in a
// process of its own, with sockets.
#pragma once

#include <sys/wait.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/server.h"
#include "server/testing/test_client.h"
#include "server/testing/test_model.h"

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

/// A process for the client, so that its work is not counted: forked before this one has threads,
/// it waits for the port and calls `visit`, whose words come back through a pipe.
class Client {
 public:
  using Visit = std::function<void(uint16_t port, const Client& self)>;
  explicit Client(const Visit& visit) {
    CHECK(::pipe(down_) == 0 && ::pipe(up_) == 0);
    process_ = ::fork();
    CHECK(process_ >= 0);
    if (process_ > 0) return;
    ::close(down_[1]);
    uint16_t port = 0;
    CHECK(::read(down_[0], &port, sizeof port) == sizeof port);
    visit(port, *this);
    ::_exit(0);
  }
  ~Client() {
    for (const int end : {down_[0], down_[1], up_[0], up_[1]}) ::close(end);
    ::waitpid(process_, nullptr, 0);
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void come(uint16_t port) const { CHECK(::write(down_[1], &port, sizeof port) == sizeof port); }
  /// Written by the visit; plain values.
  template <typename Value>
  void tell(const Value& value) const {
    CHECK(::write(up_[1], &value, sizeof value) == sizeof value);
  }
  /// The visit calls this: it does `work` every `ms` until the other side ends it.
  void stay(int ms, const std::function<void()>& work) const {
    pollfd end = {.fd = down_[0], .events = POLLIN, .revents = 0};
    while (::poll(&end, 1, ms) == 0) work();
  }
  template <typename Value>
  Value hear() const {
    Value value;
    CHECK(::read(up_[0], &value, sizeof value) == sizeof value, "the client ended early");
    return value;
  }

 private:
  int down_[2], up_[2];
  pid_t process_ = -1;
};

/// A server on a thread of its own.
class Running {
 public:
  explicit Running(std::unique_ptr<Server> server)
      : server_(std::move(server)), thread_([this] { server_->run(); }) {}
  ~Running() {
    server_->terminate();
    server_->terminate();
    thread_.join();
  }
  uint16_t port() const { return server_->port(); }

 private:
  std::unique_ptr<Server> server_;
  std::thread thread_;
};

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
