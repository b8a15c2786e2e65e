// The steps of a request: connect, write, read the header, read the body piece by piece.
#include "bench/http_stream.h"

#include <utility>

namespace nibble {

std::unique_ptr<Connections::Connection> Connections::take() {
  if (idle_.empty()) return std::make_unique<Connection>(io_);
  auto connection = std::move(idle_.back());
  idle_.pop_back();
  return connection;
}

void Connections::give_back(std::unique_ptr<Connection> connection) {
  connection->age = Connection::Age::used;
  connection->stream.expires_never();
  idle_.push_back(std::move(connection));
}

HttpStream::HttpStream(Connections& connections, Message message,
                       std::chrono::duration<double> silence, StreamCalls calls)
    : connections_(connections),
      message_(std::move(message)),
      silence_(std::chrono::duration_cast<std::chrono::nanoseconds>(silence)),
      calls_(std::move(calls)) {}

void HttpStream::start() {
  connection_ = connections_.take();
  if (connection_->age == Connections::Connection::Age::used)
    write();
  else
    connect();
}

void HttpStream::cancel() {
  if (std::exchange(over_, true)) return;
  if (connection_) connection_->stream.close();
}

void HttpStream::connect() {
  expire();
  connection_->stream.async_connect(
      connections_.endpoints(), [self = shared_from_this()](beast::error_code error, const auto&) {
        if (self->over_) return;
        if (error) return self->finish(StreamEnd::failed, error);
        beast::error_code ignored;
        self->connection_->stream.socket().set_option(asio::ip::tcp::no_delay(true), ignored);
        self->write();
      });
}

void HttpStream::write() {
  expire();
  http::async_write(connection_->stream, message_,
                    [self = shared_from_this()](beast::error_code error, size_t) {
                      if (self->over_) return;
                      // A server that refuses may answer before it has read everything.
                      if (error && self->again(error)) return;
                      self->read_header();
                    });
}

void HttpStream::read_header() {
  expire();
  parser_.emplace();
  parser_->body_limit(boost::none);
  http::async_read_header(
      connection_->stream, connection_->buffer, *parser_,
      [self = shared_from_this()](beast::error_code error, size_t) {
        if (self->over_) return;
        if (error && self->again(error)) return;
        if (error) return self->finish(StreamEnd::failed, error);
        self->calls_.status(static_cast<int>(self->parser_->get().result_int()));
        if (!self->over_) self->read_body();
      });
}

void HttpStream::read_body() {
  if (parser_->is_done()) return finish(StreamEnd::complete, {});
  expire();
  auto& body = parser_->get().body();
  body.data = chunk_.data();
  body.size = chunk_.size();
  body.more = true;
  http::async_read_some(connection_->stream, connection_->buffer, *parser_,
                        [self = shared_from_this()](beast::error_code error, size_t) {
                          if (self->over_) return;
                          const size_t size =
                              self->chunk_.size() - self->parser_->get().body().size;
                          if (size > 0) self->calls_.bytes({self->chunk_.data(), size});
                          if (self->over_) return;
                          if (error == http::error::need_buffer) error = {};
                          // Without a length the end of the connection is the end of the body.
                          if (error == http::error::end_of_stream && self->parser_->is_done())
                            error = {};
                          if (error) return self->finish(StreamEnd::cut, error);
                          self->read_body();
                        });
}

bool HttpStream::again(beast::error_code error) {
  const bool reused = connection_->age == Connections::Connection::Age::used;
  if (!reused || error == beast::error::timeout || connection_->buffer.size() > 0) return false;
  connection_ = std::make_unique<Connections::Connection>(connections_.io());
  connect();
  return true;
}

void HttpStream::finish(StreamEnd end, beast::error_code error) {
  over_ = true;
  if (error == beast::error::timeout) end = StreamEnd::timeout;
  if (end == StreamEnd::complete && parser_->keep_alive() && connection_->buffer.size() == 0)
    connections_.give_back(std::move(connection_));
  else
    connection_->stream.close();
  calls_.end(end, error ? error.message() : "");
}

}  // namespace nibble
