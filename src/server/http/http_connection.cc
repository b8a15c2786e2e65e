// One socket as a state machine: one read always pending, writes joined, every wait bounded.
#include "server/http/http_connection.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <cctype>
#include <charconv>
#include <ctime>

#include "base/json.h"

namespace nibble {

namespace http = boost::beast::http;
namespace asio = boost::asio;

namespace {

constexpr size_t kReadBytes = 16 * 1024;
constexpr size_t kPipelinedBytesMax = 64 * 1024;  // read ahead while an answer is being made
constexpr size_t kLingerBytesMax = size_t{64} << 20;
constexpr std::chrono::milliseconds kLingerWait{2'000};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

/// A request's target as RFC 9112, 3.2, has it: a path, or a whole address whose host replaces the
/// Host header.
struct Target {
  std::string_view path;  // the path, query included
  std::string_view host;  // empty: not said
};

std::optional<Target> read_target(std::string_view target) {
  if (target.starts_with('/')) return Target{.path = target, .host = {}};
  const size_t scheme = target.find("://");
  if (scheme == std::string_view::npos) return std::nullopt;
  if (const std::string name = lower(target.substr(0, scheme)); name != "http" && name != "https")
    return std::nullopt;
  target.remove_prefix(scheme + 3);
  const size_t end = std::min(target.find_first_of("/?"), target.size());
  const std::string_view host = target.substr(0, end);
  if (host.empty() || host.find('@') != std::string_view::npos) return std::nullopt;
  const std::string_view path = target.substr(end);
  return Target{.path = path.starts_with('/') ? path : "/", .host = host};
}

std::string& append_hex(std::string& out, size_t value) {
  char digits[20];
  const auto end = std::to_chars(digits, digits + sizeof digits, value, 16);
  return out.append(digits, end.ptr);
}

/// "Sat, 21 Nov 2026 08:00:00 GMT".
std::string http_date() {
  const std::time_t now = std::time(nullptr);
  std::tm fields = {};
  ::gmtime_r(&now, &fields);
  char text[64];
  std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &fields);
  return text;
}

int status_of(const boost::system::error_code& error) {
  if (error == http::error::header_limit) return 431;
  if (error == http::error::body_limit) return 413;
  return 400;
}

}  // namespace

std::string_view http_reason(int status) {
  return http::obsolete_reason(static_cast<http::status>(status));
}

namespace {

std::string_view code_of(int status) {
  switch (status) {
    case 408:
      return "request_timeout";
    case 413:
      return "request_too_large";
    case 415:
      return "unsupported_content_encoding";
    case 429:
      return "overloaded";
    case 431:
      return "request_header_too_large";
    case 501:
      return "unsupported_transfer_encoding";
    case 503:
      return "too_many_connections";
    default:
      return "invalid_http_request";
  }
}

}  // namespace

std::string http_error_body(int status, std::string_view message) {
  const std::string_view type = status == 413 ? "request_too_large" : "invalid_request_error";
  return json_object({{"error", json_object({{"message", Json(message)},
                                             {"type", Json(type)},
                                             {"param", Json()},
                                             {"code", Json(code_of(status))}})}})
      .dump();
}

/// The handler's side of one request.
class SocketExchange final : public HttpExchange {
 public:
  explicit SocketExchange(const std::shared_ptr<HttpConnection>& connection)
      : connection_(connection), serial_(connection->serial_) {}

  void respond(HttpResponse response) override {
    const auto c = live();
    if (!c) return;
    c->add_head(response, response.body.size());
    if (!c->head_request_) c->pending_ += response.body;
    c->end_answer();
  }
  void start_stream(HttpResponse response) override {
    const auto c = live();
    if (!c) return;
    c->framing_ =
        c->http_1_0_ ? HttpConnection::Framing::until_close : HttpConnection::Framing::chunked;
    if (c->http_1_0_) c->keep_alive_ = false;
    c->add_head(response, std::nullopt);
    c->add_piece(response.body);
    c->send_pending();
  }
  void write(std::string piece) override {
    const auto c = live();
    if (!c) return;
    c->add_piece(piece);
    c->send_pending();
  }
  void finish_stream() override {
    const auto c = live();
    if (!c) return;
    if (c->framing_ == HttpConnection::Framing::chunked) c->pending_ += "0\r\n\r\n";
    c->end_answer();
  }
  void on_gone(std::function<void()> callback) override {
    if (const auto c = live())
      c->on_gone_ = std::move(callback);
    else
      callback();
  }

 private:
  std::shared_ptr<HttpConnection> live() const {
    auto c = connection_.lock();
    const bool current = c && c->serial_ == serial_ && !c->answer_ended_ && c->busy();
    return current ? c : nullptr;
  }
  std::weak_ptr<HttpConnection> connection_;
  uint64_t serial_;
};

HttpConnection::HttpConnection(std::unique_ptr<HttpTransport> transport, HttpPeer peer,
                               HttpConnectionOwner& owner)
    : transport_(std::move(transport)),
      peer_(std::move(peer)),
      owner_(owner),
      read_timer_(transport_->executor()),
      write_timer_(transport_->executor()) {}

void HttpConnection::start() {
  wait_for(Phase::idle, owner_.limits().header_wait);  // the first request must come promptly
  transport_->handshake([self = shared_from_this()](ErrorCode error) {
    if (self->phase_ == Phase::closed) return;
    if (error) return self->close();
    self->read_more();
  });
}

void HttpConnection::close() {
  if (phase_ == Phase::closed) return;
  phase_ = Phase::closed;
  const auto keep = shared_from_this();
  read_timer_.cancel();
  write_timer_.cancel();
  transport_->close();
  on_gone_ = {};
  owner_.closed(this);
}

void HttpConnection::close_when_idle() {
  keep_alive_ = false;
  if (phase_ == Phase::idle) close();
}

void HttpConnection::wait_for(Phase phase, std::chrono::milliseconds limit) {
  phase_ = phase;
  read_timer_.expires_after(limit);
  read_timer_.async_wait([weak = weak_from_this()](ErrorCode error) {
    if (const auto self = weak.lock(); self && !error) self->on_read_timeout();
  });
}

void HttpConnection::on_read_timeout() {
  if (read_timer_.expiry() > std::chrono::steady_clock::now()) return;  // was set anew
  if (phase_ == Phase::idle || phase_ == Phase::lingering) return close();
  if (phase_ == Phase::header || phase_ == Phase::body)
    refuse(408, "the request did not arrive in time");
}

void HttpConnection::read_more() {
  if (reading_ || phase_ == Phase::closed) return;
  if (phase_ == Phase::answering && input_.size() >= kPipelinedBytesMax) return;
  reading_ = true;
  transport_->read_some(input_.prepare(kReadBytes),
                        [self = shared_from_this()](ErrorCode error, size_t bytes) {
                          self->reading_ = false;
                          self->on_read(error, bytes);
                        });
}

void HttpConnection::on_read(ErrorCode error, size_t bytes) {
  if (phase_ == Phase::closed) return;
  if (error == asio::error::eof) return input_ended();
  if (error) return client_gone();
  input_.commit(bytes);
  if (phase_ == Phase::lingering) {
    discarded_ += input_.size();
    input_.consume(input_.size());
    if (discarded_ > kLingerBytesMax) return close();
  } else {
    parse();
  }
  read_more();
}

void HttpConnection::parse() {
  while (input_.size() > 0 && phase_ < Phase::answering) {
    if (phase_ == Phase::idle) {
      wait_for(Phase::header, owner_.limits().header_wait);
      parser_.emplace();  // not eager until the header is complete: `used` is of it alone
      header_bytes_ = 0;
      parser_->header_limit(owner_.limits().header_bytes_max);
      parser_->body_limit(owner_.limits().one_body_bytes_max());
    }
    ErrorCode error;
    const size_t used = parser_->put(input_.data(), error);
    input_.consume(used);
    if (phase_ == Phase::header) header_bytes_ += used;
    // The parser's own limit is of the first line and, again, of the others.
    if (!error && header_bytes_ > owner_.limits().header_bytes_max)
      error = http::error::header_limit;
    if (error && error != http::error::need_more) {
      const int status = status_of(error);
      if (status == 413)
        return refuse(413, concat("the request body is larger than ",
                                  owner_.limits().one_body_bytes_max(), " bytes"));
      if (status == 431)
        return refuse(431, concat("the request header is larger than ",
                                  owner_.limits().header_bytes_max, " bytes"));
      return refuse(400, concat("this is not valid HTTP/1.1: ", error.message()));
    }
    if (phase_ == Phase::header && parser_->is_header_done()) header_complete();
    if (phase_ == Phase::body) take_body_share(parser_->get().body().size());
    if (phase_ == Phase::body && parser_->is_done()) return deliver();
    if (error || used == 0) return;
  }
}

void HttpConnection::header_complete() {
  const auto& message = parser_->get();
  const auto fail = [&](int status, std::string_view reason) { refuse(status, reason); };
  size_t lines = 0;
  for ([[maybe_unused]] const auto& field : message) ++lines;
  if (lines > owner_.limits().header_lines_max)
    return fail(431, concat("the request has ", lines, " header lines: at most ",
                            owner_.limits().header_lines_max));
  if (message.version() >= 11 && message.count(http::field::host) != 1)
    return fail(400, "HTTP/1.1 requests need exactly one Host header");
  if (message.count(http::field::transfer_encoding) > 0) {
    if (message.count(http::field::content_length) > 0)
      return fail(400, "Transfer-Encoding must be chunked alone, without Content-Length");
    if (message.count(http::field::transfer_encoding) > 1 ||
        !boost::beast::iequals(message[http::field::transfer_encoding], "chunked"))
      return fail(501, "a Transfer-Encoding other than chunked is not supported");
  }
  if (message.count(http::field::content_encoding) > 0)
    return fail(415, "Content-Encoding is not supported; send the body as it is");
  if (!read_target({message.target().data(), message.target().size()}))
    return fail(400, "the request target must be a path or begin with http:// or https://");
  parser_->eager(true);
  wait_for(Phase::body, owner_.limits().body_wait);
  std::string forwarded_for;  // a list may come in several lines; a proxy's own is the last
  const auto [first, last] = message.equal_range("X-Forwarded-For");
  for (auto line = first; line != last; ++line) {
    if (!forwarded_for.empty()) forwarded_for += ',';
    forwarded_for += line->value();
  }
  body_share_ = owner_.body_share(peer_.address, forwarded_for);
  take_body_share(parser_->content_length().value_or(0));
  if (phase_ != Phase::body) return;
  if (boost::beast::iequals(message[http::field::expect], "100-continue") && !parser_->is_done()) {
    pending_ += kContinue;
    send_pending();
  }
}

/// The parser makes room for a body whose length is known, before it has come.
void HttpConnection::take_body_share(uint64_t bytes) {
  const HttpLimits& limits = owner_.limits();
  if (body_share_->grow_to(std::min(bytes, limits.one_body_bytes_max()))) return;
  refuse(429, concat("the bodies of all requests would take more than ", limits.bodies_bytes_max,
                     " bytes, or those of one address more than ",
                     limits.bodies_per_address_bytes_max(), "; try again later"));
}

void HttpConnection::deliver() {
  auto message = parser_->release();
  parser_.reset();
  read_timer_.cancel();
  phase_ = Phase::answering;
  ++serial_;
  answer_begun_ = answer_ended_ = false;
  framing_ = Framing::length;
  http_1_0_ = message.version() < 11;
  head_request_ = message.method() == http::verb::head;
  keep_alive_ = message.keep_alive() && owner_.accepting();

  HttpRequest request;
  request.entrance = peer_.entrance;
  request.method = std::string(message.method_string());
  request.client = peer_.address;
  const Target target = *read_target({message.target().data(), message.target().size()});
  request.path = std::string(target.path.substr(0, target.path.find('?')));
  for (const auto& field : message) {
    const auto name = field.name_string();
    const auto value = field.value();
    request.headers.push_back(
        {lower({name.data(), name.size()}), std::string(value.data(), value.size())});
  }
  if (!target.host.empty())
    for (HttpHeader& header : request.headers)
      if (header.name == "host") header.value = std::string(target.host);
  request.body = std::move(message.body());
  request.body_share = std::exchange(body_share_, {});
  owner_.handle(std::move(request), std::make_shared<SocketExchange>(shared_from_this()));
}

void HttpConnection::refuse(int status, std::string_view reason) {
  phase_ = Phase::answering;
  body_share_.reset();
  read_timer_.cancel();
  ++serial_;
  answer_begun_ = answer_ended_ = false;
  head_request_ = false;
  keep_alive_ = false;
  framing_ = Framing::length;
  HttpResponse response{.status = status, .body = http_error_body(status, reason)};
  if (status == 429) response.headers.push_back({"Retry-After", "1"});
  add_head(response, response.body.size());
  pending_ += response.body;
  end_answer();
}

void HttpConnection::add_head(const HttpResponse& response, std::optional<size_t> body_bytes) {
  answer_begun_ = true;
  pending_ +=
      concat("HTTP/1.1 ", response.status, " ", http_reason(response.status),
             "\r\nDate: ", http_date(), "\r\nContent-Type: ", response.content_type, "\r\n");
  for (const HttpHeader& header : response.headers)
    pending_ += concat(header.name, ": ", header.value, "\r\n");
  if (body_bytes)
    pending_ += concat("Content-Length: ", *body_bytes, "\r\n");
  else if (framing_ == Framing::chunked)
    pending_ += "Transfer-Encoding: chunked\r\n";
  if (!keep_alive_)
    pending_ += "Connection: close\r\n";
  else if (http_1_0_)
    pending_ += "Connection: keep-alive\r\n";
  pending_ += "\r\n";
}

void HttpConnection::add_piece(std::string_view piece) {
  if (piece.empty() || head_request_) return;
  const bool chunked = framing_ == Framing::chunked;
  if (chunked) append_hex(pending_, piece.size()).append("\r\n");
  pending_.append(piece);
  if (chunked) pending_.append("\r\n");
}

/// Does nothing while bytes are being written: those that arrive meanwhile leave together.
void HttpConnection::send_pending() {
  if (phase_ == Phase::closed) return;
  if (writing_.empty()) write_more();
  // A reader this slow would hold the generation's memory: treat it as gone.
  if (pending_.size() > owner_.limits().output_bytes_max) client_gone();
}

void HttpConnection::end_answer() {
  answer_ended_ = true;
  on_gone_ = {};
  if (writing_.empty()) write_more();
  if (writing_.empty()) after_answer();
}

/// Most pieces fit the socket's buffer and are gone at once; for the rest it waits.
void HttpConnection::write_more() {
  if (written_ == writing_.size()) {
    writing_.clear();
    std::swap(writing_, pending_);
    written_ = transport_->write_now(asio::buffer(writing_));
  }
  if (written_ == writing_.size()) {
    writing_.clear();
    written_ = 0;
    return;
  }
  write_deadline_ = std::chrono::steady_clock::now() + owner_.limits().write_wait;
  watch_writing();
  transport_->write_some(
      asio::buffer(writing_.data() + written_, writing_.size() - written_),
      [self = shared_from_this()](ErrorCode error, size_t bytes) { self->on_write(error, bytes); });
}

/// One timer at a time, set anew only when it has run out: progress is frequent.
void HttpConnection::watch_writing() {
  if (std::exchange(watching_, true)) return;
  write_timer_.expires_at(write_deadline_);
  write_timer_.async_wait([weak = weak_from_this()](ErrorCode error) {
    const auto self = weak.lock();
    if (!self || error) return;
    self->watching_ = false;
    if (self->writing_.empty()) return;
    if (self->write_deadline_ <= std::chrono::steady_clock::now()) return self->client_gone();
    self->watch_writing();
  });
}

void HttpConnection::on_write(ErrorCode error, size_t bytes) {
  if (phase_ == Phase::closed) return;
  if (error) return client_gone();
  written_ += bytes;
  write_more();
  if (writing_.empty() && phase_ == Phase::answering && answer_ended_) after_answer();
}

void HttpConnection::after_answer() {
  if (phase_ != Phase::answering) return;
  if (!keep_alive_ || !owner_.accepting()) {
    // Closing with unread input would reset the connection and lose the answer on its way.
    transport_->shutdown_send();
    wait_for(Phase::lingering, kLingerWait);
    return read_more();
  }
  wait_for(Phase::idle, owner_.limits().idle_wait);
  // This must not run inside the handler's own call: a pipelined request would nest.
  asio::post(transport_->executor(), [self = shared_from_this()] {
    self->parse();
    self->read_more();
  });
}

/// A client that sends no more may have left or may be waiting for its answer. An interim answer,
/// which HTTP/1.1 clients pass over, tells: where nobody is left it is met by a reset. Once the
/// answer has begun its own pieces do that.
void HttpConnection::input_ended() {
  const bool may_wait = phase_ == Phase::answering && !http_1_0_;
  const bool told = may_wait && transport_->wait_for_end([weak = weak_from_this()] {
    if (const auto self = weak.lock(); self && self->phase_ != Phase::closed) self->client_gone();
  });
  if (!told) return client_gone();
  if (answer_begun_) return;
  pending_ += kContinue;
  send_pending();
}

void HttpConnection::client_gone() {
  const auto keep = shared_from_this();
  const auto callback = std::exchange(on_gone_, {});
  close();
  if (callback) callback();
}

}  // namespace nibble
