// HttpServer: HTTP/1.1 on one thread, hardened: every size, count and wait is bounded, and a client
// that leaves is noticed at once. Over TCP, with or without TLS, and Unix sockets. Boost is seen by
// http_server.cc, http_connection.* and http_transport.* alone.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "server/http/client_address.h"
#include "server/http/http.h"

namespace nibble {

struct HttpLimits {
  using Milliseconds = std::chrono::milliseconds;
  uint32_t header_bytes_max = 16 * 1024;
  size_t header_lines_max = 100;
  uint64_t body_bytes_max = uint64_t{32} << 20;
  size_t bodies_bytes_max = size_t{1} << 30;  // bytes of all requests that are read or being parsed
  size_t connections_max = 1024;
  /// Connections of one client_group(); Unix sockets have no address, trusted proxies have many
  /// clients.
  size_t connections_per_address_max = 256;
  size_t output_bytes_max = size_t{4} << 20;  // waiting for one slow reader
  Milliseconds header_wait{10'000};
  Milliseconds body_wait{60'000};
  Milliseconds idle_wait{75'000};   // between requests of one connection
  Milliseconds write_wait{30'000};  // without any progress

  uint64_t one_body_bytes_max() const {
    return std::min<uint64_t>(body_bytes_max, bodies_bytes_max);
  }
  /// The bodies of one client_group(), as connections_per_address_max counts it, or of the client
  /// that a trusted proxy names: a quarter of all, and room for one.
  size_t bodies_per_address_bytes_max() const {
    return std::max<size_t>(bodies_bytes_max / 4, one_body_bytes_max());
  }
};

/// off: no socket and no signals; only what is posted runs.
enum class Listening : uint8_t { on, off };

/// PEM files; empty: plain HTTP. With `ca_certs` clients must show a certificate signed by one of
/// them.
struct TlsFiles {
  std::filesystem::path certificate;  // and what leads from it to the root
  std::filesystem::path key;
  std::filesystem::path ca_certs;
};

struct HttpOptions {
  Listening listening = Listening::on;
  std::string host = "127.0.0.1";
  uint16_t port = 8000;  // 0: any free one
  /// Unix sockets: of the API, in place of host and port; of the administrator, beside it, for the
  /// owner alone. Empty: none. A file left by a server that is gone is replaced.
  std::filesystem::path uds;
  std::filesystem::path admin_uds;
  TlsFiles tls;  // certificate and key for host and port
  std::vector<AddressRange> trusted_proxies;
  HttpLimits limits;
};

class HttpServer {
 public:
  /// Binds and listens. Errors: invalid_argument (no such address, a path too long, certificates
  /// that do not fit), io (port taken, no right).
  static Result<std::unique_ptr<HttpServer>> listen(const HttpOptions& options,
                                                    HttpHandler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  uint16_t port() const;
  /// Serves on the calling thread until stop().
  void run();

  // While nobody runs it.
  /// Another handler for requests to come, also those of open connections.
  void handle_with(HttpHandler handler);

  // May be called from any thread.
  /// Runs `task` on the server's thread.
  void post(std::function<void()> task);
  /// Runs `task` on the server's thread after `delay`, once.
  void post_after(std::chrono::milliseconds delay, std::function<void()> task);

  /// Calls back on the server's thread for every SIGINT and SIGTERM from now on. Before run().
  void on_terminate(std::function<void()> callback);

  /// Reads the files of TLS again, here, for connections to come. Errors: those of listen(); what
  /// was read before stays.
  Result<void> renew_certificates();

  // Runs on the server's thread.
  /// No new connections; kept-alive ones close after their present answer.
  void stop_accepting();
  /// Connections with a request in flight.
  size_t busy_connections() const;
  /// run() returns and may be called again; sockets stay as they are.
  void pause();
  /// Closes everything; run() returns.
  void stop();

 private:
  struct State;

 public:
  /// For listen() alone: State is private.
  explicit HttpServer(std::shared_ptr<State> state);

 private:
  std::shared_ptr<State> state_;
};

}  // namespace nibble
