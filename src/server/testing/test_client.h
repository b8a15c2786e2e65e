// For tests: a raw loopback client that sends what it is told, byte by byte if need be, and reads
// what comes; and tasks on the thread of the server it talks to.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <functional>
#include <future>
#include <string>
#include <string_view>

#include "base/concat.h"
#include "server/http/http_server.h"
#include "testing/soon.h"

namespace nibble::testing {

/// Runs a task on a server's thread and waits.
inline void run_on(HttpServer& server, const std::function<void()>& task) {
  std::promise<void> done;
  server.post([&] {
    task();
    done.set_value();
  });
  done.get_future().wait();
}

class RawClient {
 public:
  static constexpr int kPatienceMs = 1000 * static_cast<int>(kPatience.count());

  explicit RawClient(uint16_t port) : RawClient(port, "127.0.0.1") {}
  /// Connects from an address of the loopback network.
  RawClient(uint16_t port, const char* from) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in own = {};
    own.sin_family = AF_INET;
    ::inet_pton(AF_INET, from, &own.sin_addr);
    ::bind(socket_, reinterpret_cast<sockaddr*>(&own), sizeof own);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  /// A client of a Unix socket.
  explicit RawClient(const std::string& path) : socket_(::socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    connected_ = ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~RawClient() { close(); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }
  bool connected() const { return connected_; }
  /// Ends sending; reading goes on.
  void end_sending() { ::shutdown(socket_, SHUT_WR); }
  /// Lets little gather at this end; the kernel takes the least it knows.
  void receive_at_most(int bytes) {
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
  }
  /// False if the peer takes nothing any more.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  /// Reads until `text` has come, the peer closes, or nothing comes for `wait_ms`.
  std::string read_until(std::string_view text, int wait_ms = kPatienceMs) {
    while (text.empty() || seen_.find(text) == std::string::npos) {
      pollfd poll = {.fd = socket_, .events = POLLIN, .revents = 0};
      if (::poll(&poll, 1, wait_ms) <= 0) break;
      char bytes[65536];
      const ssize_t size = ::recv(socket_, bytes, sizeof bytes, 0);
      closed_ = size <= 0;
      if (closed_) break;
      seen_.append(bytes, static_cast<size_t>(size));
    }
    return std::exchange(seen_, {});
  }
  /// `count` bytes, or fewer if the peer closes or nothing comes for `wait_ms`.
  std::string read_bytes(size_t count, int wait_ms = kPatienceMs) {
    std::string bytes = std::exchange(seen_, {});
    while (bytes.size() < count) {
      pollfd poll = {.fd = socket_, .events = POLLIN, .revents = 0};
      char piece[65536];
      const ssize_t size =
          ::poll(&poll, 1, wait_ms) > 0 ? ::recv(socket_, piece, sizeof piece, 0) : 0;
      if (size <= 0) break;
      bytes.append(piece, static_cast<size_t>(size));
    }
    return bytes;
  }
  /// Everything until the peer closes.
  std::string read_all() { return read_until(""); }
  bool closed() const { return closed_; }

 private:
  int socket_;
  bool connected_ = false;
  bool closed_ = false;
  std::string seen_;
};

inline std::string post(std::string_view path, std::string_view body,
                        std::string_view headers = "") {
  return concat("POST ", path, " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n",
                headers, "Content-Length: ", body.size(), "\r\n\r\n", body);
}
inline std::string get(std::string_view path, std::string_view headers = "") {
  return concat("GET ", path, " HTTP/1.1\r\nHost: localhost\r\n", headers, "\r\n");
}

}  // namespace nibble::testing
