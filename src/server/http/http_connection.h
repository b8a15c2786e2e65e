// HttpConnection: one client socket: read, parse, hand over, write, again. Private to the HTTP
// server; this header is the only one that shows Boost, and only http_*.cc include it.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/http_server.h"
#include "server/http/http_transport.h"

namespace nibble {

/// The services that a connection needs from its server.
class HttpConnectionOwner {
 public:
  virtual ~HttpConnectionOwner() = default;
  virtual const HttpLimits& limits() const = 0;
  /// An empty share of the memory for bodies, of the part that the client may have.
  virtual std::shared_ptr<ByteBudget::Share> body_share(const std::string& peer,
                                                        std::string_view forwarded_for) = 0;
  virtual void handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) = 0;
  virtual bool accepting() const = 0;
  virtual void closed(class HttpConnection* connection) = 0;
};

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(std::unique_ptr<HttpTransport> transport, HttpPeer peer,
                 HttpConnectionOwner& owner);

  void start();
  void close();
  const HttpPeer& peer() const { return peer_; }
  bool busy() const { return phase_ == Phase::answering; }
  /// Closes now if nothing is in flight, else after the present answer.
  void close_when_idle();

 private:
  friend class SocketExchange;
  using ErrorCode = boost::system::error_code;
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  enum class Phase : uint8_t {
    idle,       // between requests
    header,     // some bytes of a request have come
    body,       // the header of the request is complete
    answering,  // the handler has it
    lingering,  // answered with Connection: close; reads until the client has closed
    closed,
  };
  enum class Framing : uint8_t { length, chunked, until_close };

  void read_more();
  void on_read(ErrorCode error, size_t bytes);
  void parse();
  void header_complete();
  void take_body_share(uint64_t bytes);
  void deliver();
  void refuse(int status, std::string_view reason);
  void wait_for(Phase phase, std::chrono::milliseconds limit);
  void on_read_timeout();

  void add_head(const HttpResponse& response, std::optional<size_t> body_bytes);
  void add_piece(std::string_view piece);
  void send_pending();
  void end_answer();
  void write_more();
  void watch_writing();
  void on_write(ErrorCode error, size_t bytes);
  void after_answer();
  void input_ended();
  void client_gone();

  std::unique_ptr<HttpTransport> transport_;
  HttpPeer peer_;
  HttpConnectionOwner& owner_;
  boost::asio::steady_timer read_timer_;
  boost::asio::steady_timer write_timer_;
  boost::beast::flat_buffer input_;
  std::optional<Parser> parser_;
  Phase phase_ = Phase::idle;
  bool reading_ = false;
  size_t discarded_ = 0;
  size_t header_bytes_ = 0;                        // bytes of the header that is being read
  std::shared_ptr<ByteBudget::Share> body_share_;  // share of the body that is being read

  // The answer in progress.
  uint64_t serial_ = 0;  // number of the request; an exchange with another number is stale
  bool head_request_ = false;
  bool http_1_0_ = false;
  bool keep_alive_ = false;
  bool answer_begun_ = false;
  bool answer_ended_ = false;
  Framing framing_ = Framing::length;
  std::function<void()> on_gone_;
  std::string pending_;  // not handed to the socket yet
  std::string writing_;  // partly written; empty: nothing is on its way
  size_t written_ = 0;
  std::chrono::steady_clock::time_point write_deadline_;  // some bytes must be written by then
  bool watching_ = false;                                 // write_timer_ runs
};

/// "Not Found" for 404.
std::string_view http_reason(int status);
/// The body of an error this layer makes itself, in the OpenAI shape.
std::string http_error_body(int status, std::string_view message);

}  // namespace nibble
