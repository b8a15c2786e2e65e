// Listening, accepting, signals and timers.
#include "server/http/http_server.h"

#include <sys/stat.h>
#include <sys/un.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <csignal>
#include <map>
#include <set>

#include "server/http/http_connection.h"

namespace nibble {

namespace asio = boost::asio;
using Tcp = asio::ip::tcp;
using Local = asio::local::stream_protocol;

struct HttpServer::State final : HttpConnectionOwner {
  State(const HttpOptions& given, HttpHandler handle)
      : options(given),
        handler(std::move(handle)),
        bodies(std::make_shared<ByteBudget>(given.limits.bodies_bytes_max)),
        tcp(io),
        uds(io),
        admin(io),
        signals(io) {}

  Result<void> open();
  Result<void> open_tcp();
  template <typename Acceptor>
  void accept(Acceptor& acceptor, Entrance entrance);
  template <typename Acceptor>
  void accepted(Acceptor& acceptor, Entrance entrance, boost::system::error_code error,
                typename Acceptor::protocol_type::socket socket);
  void welcome(HttpTransport::Socket socket, HttpPeer peer);
  void close_doors();

  const HttpLimits& limits() const override { return options.limits; }
  std::shared_ptr<ByteBudget::Share> body_share(const std::string& peer,
                                                std::string_view forwarded_for) override {
    const std::string client = client_behind(peer, forwarded_for, options.trusted_proxies);
    return std::make_shared<ByteBudget::Share>(is_counted(client) ? bodies_of(client_group(client))
                                                                  : bodies);
  }
  /// The part of the memory for bodies that one group may have; it is kept as long as there are
  /// shares of it, which outlive connections.
  std::shared_ptr<ByteBudget> bodies_of(const std::string& group) {
    const auto known = bodies_by_address.find(group);
    if (known != bodies_by_address.end())
      if (auto budget = known->second.lock()) return budget;
    std::erase_if(bodies_by_address, [](const auto& entry) { return entry.second.expired(); });
    auto budget =
        std::make_shared<ByteBudget>(options.limits.bodies_per_address_bytes_max(), bodies);
    bodies_by_address[group] = budget;
    return budget;
  }
  void handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) override {
    handler(std::move(request), std::move(exchange));
  }
  bool accepting() const override { return tcp.is_open() || uds.is_open(); }
  /// Trusted proxies are not counted.
  bool is_counted(const std::string& address) const {
    return !address.empty() && !is_trusted(address, options.trusted_proxies);
  }
  void closed(HttpConnection* connection) override {
    const std::string& address = connection->peer().address;
    const auto count =
        is_counted(address) ? by_address.find(client_group(address)) : by_address.end();
    if (count != by_address.end() && --count->second == 0) by_address.erase(count);
    connections.erase(connection->shared_from_this());
  }

  HttpOptions options;  // the port is the bound one
  HttpHandler handler;
  std::shared_ptr<ByteBudget> bodies;
  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{io.get_executor()};
  Tcp::acceptor tcp;
  Local::acceptor uds, admin;
  std::shared_ptr<asio::ssl::context> tls;  // empty: plain
  asio::signal_set signals;
  std::function<void()> on_terminate;
  bool paused = false;
  std::set<std::shared_ptr<HttpConnection>> connections;
  std::map<std::string, size_t> by_address;  // connections of each client_group()
  std::map<std::string, std::weak_ptr<ByteBudget>> bodies_by_address;
};

namespace {

std::string peer_address(const Tcp::socket& socket) {
  boost::system::error_code error;
  const auto endpoint = socket.remote_endpoint(error);
  return error ? std::string("unknown") : endpoint.address().to_string();
}
std::string peer_address(const Local::socket&) { return {}; }

/// For its owner only until it listens, which bind() alone could not promise.
Result<void> open_local(Local::acceptor& acceptor, const std::filesystem::path& path,
                        std::string_view flag) {
  if (path.string().size() >= sizeof(sockaddr_un::sun_path))
    return make_error(ErrorCode::invalid_argument,
                      {.what = concat(flag, " ", path.string()),
                       .expected = concat("at most ", sizeof(sockaddr_un::sun_path) - 1, " bytes"),
                       .found = concat(path.string().size())});
  const Local::endpoint endpoint(path.string());
  boost::system::error_code error;
  std::error_code ignored;
  if (std::filesystem::is_socket(path, ignored)) {
    Local::socket probe(acceptor.get_executor());
    probe.connect(endpoint, error);
    if (error == asio::error::connection_refused) std::filesystem::remove(path, ignored);
  }
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error && ::chmod(path.c_str(), S_IRUSR | S_IWUSR) != 0)
    error = boost::system::error_code(errno, boost::system::system_category());
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (!error) return {};
  return make_error(
      ErrorCode::io,
      {.what = concat("cannot listen on ", flag, " ", path.string(), " (", error.message(), ")"),
       .advice = "choose a path that is free, in a folder that can be written"});
}

}  // namespace

Result<void> HttpServer::State::open() {
  if (!options.tls.certificate.empty()) tls = TRY(tls_context(options.tls));
  if (!options.admin_uds.empty()) TRY(open_local(admin, options.admin_uds, "--admin-socket"));
  if (options.uds.empty())
    TRY(open_tcp());
  else
    TRY(open_local(uds, options.uds, "--uds"));
  if (tcp.is_open()) accept(tcp, Entrance::clients);
  if (uds.is_open()) accept(uds, Entrance::clients);
  if (admin.is_open()) accept(admin, Entrance::admin);
  return {};
}

Result<void> HttpServer::State::open_tcp() {
  boost::system::error_code error;
  const auto address = asio::ip::make_address(options.host, error);
  if (error)
    return make_error(ErrorCode::invalid_argument,
                      {.what = "--host",
                       .expected = "a numeric address such as 127.0.0.1 or 0.0.0.0",
                       .found = options.host});
  const Tcp::endpoint endpoint(address, options.port);
  tcp.open(endpoint.protocol(), error);
  if (!error) tcp.set_option(Tcp::acceptor::reuse_address(true), error);
  if (!error) tcp.bind(endpoint, error);
  if (!error) tcp.listen(asio::socket_base::max_listen_connections, error);
  if (error)
    return make_error(ErrorCode::io, {.what = concat("cannot listen on ", options.host, " port ",
                                                     options.port, " (", error.message(), ")"),
                                      .advice = "choose another --host or --port"});
  options.port = tcp.local_endpoint().port();
  return {};
}

template <typename Acceptor>
void HttpServer::State::accept(Acceptor& acceptor, Entrance entrance) {
  acceptor.async_accept([this, &acceptor, entrance](boost::system::error_code error, auto socket) {
    accepted(acceptor, entrance, error, std::move(socket));
  });
}

template <typename Acceptor>
void HttpServer::State::accepted(Acceptor& acceptor, Entrance entrance,
                                 boost::system::error_code error,
                                 typename Acceptor::protocol_type::socket socket) {
  if (!acceptor.is_open()) return;
  if (error) {  // out of descriptors, most likely: wait for some to be closed
    const auto retry = std::make_shared<asio::steady_timer>(io, std::chrono::milliseconds(100));
    retry->async_wait([this, retry, &acceptor, entrance](boost::system::error_code stopped) {
      if (!stopped && acceptor.is_open()) accept(acceptor, entrance);
    });
    return;
  }
  boost::system::error_code ignored;
  if constexpr (std::is_same_v<Acceptor, Tcp::acceptor>)
    socket.set_option(Tcp::no_delay(true), ignored);
  HttpPeer peer{.entrance = entrance, .address = peer_address(socket)};
  welcome(std::move(socket), std::move(peer));
  accept(acceptor, entrance);
}

namespace {

void turn_away(HttpTransport::Socket socket, std::string_view reason) {
  const std::string body = http_error_body(503, reason);
  const std::string answer = concat(
      "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n",
      "Retry-After: 1\r\nConnection: close\r\nContent-Length: ", body.size(), "\r\n\r\n", body);
  boost::system::error_code ignored;
  socket.non_blocking(true, ignored);
  socket.write_some(asio::buffer(answer), ignored);
}

}  // namespace

/// The administrator gets in when clients have taken every place. Who has no TLS yet is told
/// nothing.
void HttpServer::State::welcome(HttpTransport::Socket socket, HttpPeer peer) {
  const bool encrypted = tls && !peer.address.empty();
  const auto refuse = [&](std::string_view reason) {
    if (!encrypted) turn_away(std::move(socket), reason);
  };
  if (peer.entrance == Entrance::clients && connections.size() >= options.limits.connections_max)
    return refuse(concat("too many connections: at most ", options.limits.connections_max,
                         " (--max-connections); try again later"));
  if (is_counted(peer.address)) {
    const std::string group = client_group(peer.address);
    const auto count = by_address.find(group);
    if (count != by_address.end() && count->second >= options.limits.connections_per_address_max)
      return refuse(concat("too many connections from one address: at most ",
                           options.limits.connections_per_address_max,
                           " (--max-connections-per-address); try again later"));
    ++by_address[group];
  }
  auto transport =
      encrypted ? tls_transport(std::move(socket), tls) : plain_transport(std::move(socket));
  auto connection = std::make_shared<HttpConnection>(std::move(transport), std::move(peer), *this);
  connections.insert(connection);
  connection->start();
}

void HttpServer::State::close_doors() {
  boost::system::error_code ignored;
  std::error_code also_ignored;
  tcp.close(ignored);
  if (uds.is_open()) std::filesystem::remove(options.uds, also_ignored);
  if (admin.is_open()) std::filesystem::remove(options.admin_uds, also_ignored);
  uds.close(ignored);
  admin.close(ignored);
}

Result<std::unique_ptr<HttpServer>> HttpServer::listen(const HttpOptions& options,
                                                       HttpHandler handler) {
  auto state = std::make_shared<State>(options, std::move(handler));
  if (options.listening == Listening::on) {
    TRY(state->open());
  }
  return std::make_unique<HttpServer>(std::move(state));
}

HttpServer::HttpServer(std::shared_ptr<State> state) : state_(std::move(state)) {}

HttpServer::~HttpServer() { stop(); }

uint16_t HttpServer::port() const { return state_->options.port; }

void HttpServer::run() {
  if (std::exchange(state_->paused, false)) state_->io.restart();
  state_->io.run();
}

void HttpServer::handle_with(HttpHandler handler) { state_->handler = std::move(handler); }

void HttpServer::pause() {
  state_->paused = true;
  state_->io.stop();
}

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

Result<void> HttpServer::renew_certificates() {
  auto fresh = TRY(tls_context(state_->options.tls));
  post([state = state_.get(), fresh = std::move(fresh)] { state->tls = fresh; });
  return {};
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
  state_->close_doors();
  const auto connections = state_->connections;  // closing changes the set
  for (const auto& connection : connections) connection->close_when_idle();
}

size_t HttpServer::busy_connections() const {
  size_t busy = 0;
  for (const auto& connection : state_->connections) busy += connection->busy() ? 1 : 0;
  return busy;
}

void HttpServer::stop() {
  state_->close_doors();
  const auto connections = state_->connections;
  for (const auto& connection : connections) connection->close();
  state_->io.stop();
}

}  // namespace nibble
