// Listening, accepting, signals and timers.
#include "server/http_server.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/write.hpp>
#include <csignal>
#include <set>

#include "server/http_connection.h"

namespace nibble {

namespace asio = boost::asio;
using Tcp = asio::ip::tcp;

struct HttpServer::State final : HttpConnectionOwner {
  State(const HttpOptions& given, HttpHandler handle)
      : options(given), handler(std::move(handle)), acceptor(io), retry(io), signals(io) {}

  Result<void> open();
  void accept();
  void accepted(boost::system::error_code error, Tcp::socket socket);
  void turn_away(Tcp::socket socket) const;

  const HttpLimits& limits() const override { return options.limits; }
  void handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) override {
    handler(std::move(request), std::move(exchange));
  }
  bool accepting() const override { return acceptor.is_open(); }
  void closed(HttpConnection* connection) override {
    std::erase_if(connections, [&](const auto& held) { return held.get() == connection; });
  }

  HttpOptions options;  // the port is the bound one
  HttpHandler handler;
  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{io.get_executor()};
  Tcp::acceptor acceptor;
  asio::steady_timer retry;
  asio::signal_set signals;
  std::function<void()> on_terminate;
  std::set<std::shared_ptr<HttpConnection>> connections;
};

Result<void> HttpServer::State::open() {
  boost::system::error_code error;
  const auto address = asio::ip::make_address(options.host, error);
  if (error)
    return make_error(ErrorCode::invalid_argument,
                      {.what = "--host",
                       .expected = "a numeric address such as 127.0.0.1 or 0.0.0.0",
                       .found = options.host});
  const Tcp::endpoint endpoint(address, options.port);
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(Tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error)
    return make_error(ErrorCode::io, {.what = concat("cannot listen on ", options.host, " port ",
                                                     options.port, " (", error.message(), ")"),
                                      .advice = "choose another --host or --port"});
  options.port = acceptor.local_endpoint().port();
  return {};
}

void HttpServer::State::accept() {
  acceptor.async_accept([this](boost::system::error_code error, Tcp::socket socket) {
    accepted(error, std::move(socket));
  });
}

void HttpServer::State::accepted(boost::system::error_code error, Tcp::socket socket) {
  if (!acceptor.is_open()) return;
  if (error) {  // out of descriptors, most likely: wait for some to be closed
    retry.expires_after(std::chrono::milliseconds(100));
    retry.async_wait([this](boost::system::error_code stopped) {
      if (!stopped && acceptor.is_open()) accept();
    });
    return;
  }
  if (connections.size() >= options.limits.connections_max) {
    turn_away(std::move(socket));
  } else {
    auto connection = std::make_shared<HttpConnection>(std::move(socket), *this);
    connections.insert(connection);
    connection->start();
  }
  accept();
}

void HttpServer::State::turn_away(Tcp::socket socket) const {
  const std::string body = http_error_body(503, "too many connections; try again later");
  const std::string answer = concat(
      "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n",
      "Retry-After: 1\r\nConnection: close\r\nContent-Length: ", body.size(), "\r\n\r\n", body);
  boost::system::error_code ignored;
  socket.non_blocking(true, ignored);
  socket.write_some(asio::buffer(answer), ignored);
}

Result<std::unique_ptr<HttpServer>> HttpServer::listen(const HttpOptions& options,
                                                       HttpHandler handler) {
  auto state = std::make_shared<State>(options, std::move(handler));
  if (options.listening == Listening::on) {
    TRY(state->open());
    state->accept();
  }
  return std::make_unique<HttpServer>(std::move(state));
}

HttpServer::HttpServer(std::shared_ptr<State> state) : state_(std::move(state)) {}

HttpServer::~HttpServer() { stop(); }

uint16_t HttpServer::port() const { return state_->options.port; }

void HttpServer::run() { state_->io.run(); }

void HttpServer::post(std::function<void()> task) { asio::post(state_->io, std::move(task)); }

void HttpServer::post_after(std::chrono::milliseconds delay, std::function<void()> task) {
  const auto timer = std::make_shared<asio::steady_timer>(state_->io);
  asio::post(state_->io, [timer, delay, task = std::move(task)]() mutable {
    timer->expires_after(delay);
    timer->async_wait([timer, task = std::move(task)](boost::system::error_code error) {
      if (!error) task();
    });
  });
}

void HttpServer::on_terminate(std::function<void()> callback) {
  const auto state = state_;
  if (state->options.listening == Listening::off) return;
  state->on_terminate = std::move(callback);
  boost::system::error_code ignored;
  state->signals.add(SIGINT, ignored);
  state->signals.add(SIGTERM, ignored);
  const auto wait = [state = state.get()](auto&& self) -> void {
    state->signals.async_wait([state, self](boost::system::error_code error, int) {
      if (error) return;
      state->on_terminate();
      self(self);
    });
  };
  wait(wait);
}

void HttpServer::stop_accepting() {
  boost::system::error_code ignored;
  state_->acceptor.close(ignored);
  const auto connections = state_->connections;  // closing changes the set
  for (const auto& connection : connections) connection->close_when_idle();
}

size_t HttpServer::busy_connections() const {
  size_t busy = 0;
  for (const auto& connection : state_->connections) busy += connection->busy() ? 1 : 0;
  return busy;
}

void HttpServer::stop() {
  boost::system::error_code ignored;
  state_->acceptor.close(ignored);
  const auto connections = state_->connections;
  for (const auto& connection : connections) connection->close();
  state_->io.stop();
}

}  // namespace nibble
