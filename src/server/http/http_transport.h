// HttpTransport: the bytes below HTTP: a TCP or Unix socket, plain or with TLS. Private to the HTTP
// server, like http_connection.h.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <functional>
#include <memory>
#include <string>

#include "server/http/http_server.h"

namespace boost::asio::ssl {
class context;
}

namespace nibble {

/// The other end of a connection.
struct HttpPeer {
  Entrance entrance = Entrance::clients;
  std::string address;  // empty: a Unix socket
};

class HttpTransport {
 public:
  using ErrorCode = boost::system::error_code;
  using Socket = boost::asio::generic::stream_protocol::socket;
  using Moved = std::function<void(ErrorCode, size_t)>;

  virtual ~HttpTransport() = default;
  virtual boost::asio::any_io_executor executor() = 0;
  virtual void handshake(std::function<void(ErrorCode)> done) = 0;
  virtual void read_some(boost::asio::mutable_buffer buffer, Moved done) = 0;
  /// Writes what fits without waiting, and says how much: 0 where it cannot tell, or in error.
  virtual size_t write_now(boost::asio::const_buffer buffer) = 0;
  virtual void write_some(boost::asio::const_buffer buffer, Moved done) = 0;
  /// The peer sends no more bytes. Calls back once it reads none either, if that can be told: false
  /// if it cannot, since the peer's end of sending is the end of the connection.
  virtual bool wait_for_end(std::function<void()> ended) = 0;
  /// No more bytes from here; what the peer still sends can be read.
  virtual void shutdown_send() = 0;
  /// Reads and writes under way end with an error.
  virtual void close() = 0;
};

std::unique_ptr<HttpTransport> plain_transport(HttpTransport::Socket socket);
std::unique_ptr<HttpTransport> tls_transport(
    HttpTransport::Socket socket, const std::shared_ptr<boost::asio::ssl::context>& context);

/// TLS 1.2 or later with these files. Errors: invalid_argument, naming the file.
Result<std::shared_ptr<boost::asio::ssl::context>> tls_context(const TlsFiles& files);

}  // namespace nibble
