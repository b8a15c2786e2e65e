// One HTTP request and its streamed answer over Boost.Beast, and the connections that are kept
// between requests. For the files of this module that speak HTTP alone.
#pragma once

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace nibble {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

/// The connections to one server that are open and idle.
class Connections {
 public:
  using Endpoints = asio::ip::tcp::resolver::results_type;
  Connections(asio::io_context& io, Endpoints endpoints)
      : io_(io), endpoints_(std::move(endpoints)) {}

  struct Connection {
    explicit Connection(asio::io_context& io) : stream(io) {}
    beast::tcp_stream stream;
    beast::flat_buffer buffer;
    enum class Age : uint8_t { fresh, used } age = Age::fresh;
  };
  /// An idle one, or one that is not connected yet.
  std::unique_ptr<Connection> take();
  void give_back(std::unique_ptr<Connection> connection);
  const Endpoints& endpoints() const { return endpoints_; }
  asio::io_context& io() { return io_; }

 private:
  asio::io_context& io_;
  Endpoints endpoints_;
  std::vector<std::unique_ptr<Connection>> idle_;
};

enum class StreamEnd : uint8_t {
  complete,  // the body is whole
  cut,       // the connection ended inside the body
  failed,    // no answer, or none that is HTTP
  timeout,
};

/// The functions that a stream calls. After `end` nothing more is called; cancel() leaves it out.
struct StreamCalls {
  std::function<void(int status)> status;
  std::function<void(std::string_view bytes)> bytes;
  std::function<void(StreamEnd end, const std::string& reason)> end;
};

class HttpStream : public std::enable_shared_from_this<HttpStream> {
 public:
  using Message = http::request<http::string_body>;
  HttpStream(Connections& connections, Message message, std::chrono::duration<double> silence,
             StreamCalls calls);
  void start();
  /// Closes the connection and calls nothing any more.
  void cancel();

 private:
  void connect();
  void write();
  void read_header();
  void read_body();
  void finish(StreamEnd end, beast::error_code error);
  /// A server may have closed an idle connection: once more over a new one, if no byte came.
  bool again(beast::error_code error);
  void expire() { connection_->stream.expires_after(silence_); }

  using Parser = http::response_parser<http::buffer_body>;
  Connections& connections_;
  std::unique_ptr<Connections::Connection> connection_;
  Message message_;
  std::chrono::nanoseconds silence_;
  StreamCalls calls_;
  std::optional<Parser> parser_;
  std::array<char, 16384> chunk_;
  bool over_ = false;
};

}  // namespace nibble
