// A service that is asked by POST: {"id","place","text"} as JSON, status 200 and
// {"verdict":"pass"|"hit"} back. HTTP or HTTPS; connections are kept for the next question.
#include <boost/asio/connect.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <charconv>
#include <optional>
#include <thread>
#include <vector>

#include "server/filters/output_filter.h"

namespace nibble {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using ErrorCodeOf = boost::system::error_code;

constexpr size_t kOpenMax = 256;              // questions at once
constexpr size_t kIdleMax = 16;               // connections kept
constexpr uint64_t kAnswerBytesMax = 65'536;  // bytes of a verdict, at most
constexpr std::chrono::seconds kStepMax{60};  // of one step of a connection, at most

using PlainStream = beast::tcp_stream;
using TlsStream = beast::ssl_stream<beast::tcp_stream>;

enum class Scheme : uint8_t { http, https };

struct Target {
  Scheme scheme = Scheme::http;
  std::string host, port, path;
  std::string authority() const {
    const bool usual = port == (scheme == Scheme::http ? "80" : "443");
    const std::string name = host.find(':') == std::string::npos ? host : concat("[", host, "]");
    return usual ? name : concat(name, ":", port);
  }
};

/// The state that all questions share; used on the filter's thread alone.
template <typename Stream>
struct Shared {
  Target target;
  asio::ssl::context tls{asio::ssl::context::tls_client};
  FilterReport report;
  bool in_trouble = false;  // and that was reported
  size_t open = 0;
  uint64_t last_id = 0;
  asio::io_context io{1};  // its end ends the exchanges, which count
  std::vector<std::unique_ptr<Stream>> idle;

  std::unique_ptr<Stream> new_stream() {
    if constexpr (std::is_same_v<Stream, TlsStream>)
      return std::make_unique<Stream>(io, tls);
    else
      return std::make_unique<Stream>(io);
  }
};

/// One question: connects or takes a kept connection, writes, reads. A kept one may have been
/// closed meanwhile: then a fresh one is tried once.
template <typename Stream>
class Exchange : public std::enable_shared_from_this<Exchange<Stream>> {
 public:
  Exchange(Shared<Stream>& shared, OutputFilter::Question question, OutputFilter::Answer answer)
      : shared_(shared),
        question_(std::move(question)),
        answer_(std::move(answer)),
        resolver_(shared.io),
        stream_(shared.new_stream()) {
    ++shared_.open;
  }
  ~Exchange() {
    --shared_.open;
    if (answer_) answer_(FilterVerdict::failed);
  }

  void start() {
    request_.method(http::verb::post);
    request_.target(shared_.target.path);
    request_.version(11);
    request_.set(http::field::host, shared_.target.authority());
    request_.set(http::field::content_type, "application/json");
    request_.body() = question_->json(++shared_.last_id);
    request_.prepare_payload();
    if (shared_.idle.empty()) return connect();
    kept_ = true;
    stream_ = std::move(shared_.idle.back());
    shared_.idle.pop_back();
    write();
  }

 private:
  void connect() {
    kept_ = false;
    resolver_.async_resolve(
        shared_.target.host, shared_.target.port,
        [self = this->shared_from_this()](ErrorCodeOf error, const auto& found) {
          if (error) return self->fail(error);
          self->lowest().expires_after(kStepMax);
          self->lowest().async_connect(found, [self](ErrorCodeOf failed, const auto&) {
            if (failed) return self->fail(failed);
            self->greet();
          });
        });
  }

  /// TLS: the service shows who it is.
  void greet() {
    if constexpr (std::is_same_v<Stream, TlsStream>) {
      const std::string& host = shared_.target.host;
      ErrorCodeOf no_name;
      asio::ip::make_address(host, no_name);  // an address is no server name, RFC 6066
      if (no_name) SSL_set_tlsext_host_name(stream_->native_handle(), host.c_str());
      stream_->set_verify_callback(asio::ssl::host_name_verification(host));
      stream_->async_handshake(asio::ssl::stream_base::client,
                               [self = this->shared_from_this()](ErrorCodeOf error) {
                                 if (error) return self->fail(error);
                                 self->write();
                               });
    } else {
      write();
    }
  }

  void write() {
    lowest().expires_after(kStepMax);
    http::async_write(*stream_, request_,
                      [self = this->shared_from_this()](ErrorCodeOf error, size_t) {
                        if (error) return self->again(error);
                        self->read();
                      });
  }

  void read() {
    parser_.emplace();
    parser_->body_limit(kAnswerBytesMax);
    buffer_.clear();
    http::async_read(*stream_, buffer_, *parser_,
                     [self = this->shared_from_this()](ErrorCodeOf error, size_t) {
                       if (error) return self->again(error);
                       self->hear();
                     });
  }

  void again(ErrorCodeOf error) {
    if (!kept_) return fail(error);
    stream_ = shared_.new_stream();
    connect();
  }

  /// Told once, until it is well again.
  void fail(ErrorCodeOf error) {
    if (std::exchange(shared_.in_trouble, true) || !shared_.report) return;
    shared_.report(
        concat("filter ", shared_.target.authority(), " cannot be asked (", error.message(), ")"));
  }

  beast::tcp_stream& lowest() { return beast::get_lowest_layer(*stream_); }

  void hear() {
    shared_.in_trouble = false;
    const auto& response = parser_->get();
    const FilterVerdict verdict =
        response.result() == http::status::ok ? verdict_in(response.body()) : FilterVerdict::failed;
    if (response.keep_alive() && shared_.idle.size() < kIdleMax) {
      lowest().expires_never();
      shared_.idle.push_back(std::move(stream_));
    }
    std::exchange(answer_, {})(verdict);
  }

  Shared<Stream>& shared_;
  OutputFilter::Question question_;
  OutputFilter::Answer answer_;
  asio::ip::tcp::resolver resolver_;
  std::unique_ptr<Stream> stream_;
  beast::flat_buffer buffer_;
  http::request<http::string_body> request_;
  std::optional<http::response_parser<http::string_body>> parser_;
  bool kept_ = false;
};

template <typename Stream>
class HttpFilter final : public OutputFilter {
 public:
  HttpFilter(std::string_view url, Target target, FilterReport report)
      : name_(url), work_(shared_.io.get_executor()) {
    shared_.target = std::move(target);
    shared_.report = std::move(report);
  }
  ~HttpFilter() override {
    work_.reset();
    shared_.io.stop();
    if (thread_.joinable()) thread_.join();
  }
  asio::ssl::context& tls() { return shared_.tls; }
  void start() {
    thread_ = std::thread([this] { shared_.io.run(); });
  }
  std::string_view name() const override { return name_; }

  void ask(Question question, Answer answer) override {
    asio::post(shared_.io, [this, question = std::move(question),
                            answer = std::move(answer)]() mutable {
      if (shared_.open >= kOpenMax) return answer(FilterVerdict::failed);
      std::make_shared<Exchange<Stream>>(shared_, std::move(question), std::move(answer))->start();
    });
  }

 private:
  std::string name_;
  Shared<Stream> shared_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::thread thread_;
};

/// Whom a TLS client trusts.
Result<void> trust(asio::ssl::context& tls, const std::filesystem::path& ca) {
  tls.set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_tlsv1 |
                  asio::ssl::context::no_tlsv1_1);
  tls.set_verify_mode(asio::ssl::verify_peer);
  ErrorCodeOf error;
  if (ca.empty())
    tls.set_default_verify_paths(error);
  else
    tls.load_verify_file(ca.string(), error);
  if (!error) return {};
  return make_error(
      ErrorCode::invalid_argument,
      {.what = ca.empty() ? "the system's certificates" : concat("--filter-ca ", ca.string()),
       .expected = "certificates in PEM form",
       .found = error.message()});
}

Error bad_url(std::string_view url) {
  return make_error(ErrorCode::invalid_argument,
                    {.what = "a filter's URL",
                     .expected = "http://HOST[:PORT]/PATH or https://HOST[:PORT]/PATH",
                     .found = url.substr(0, 200)});
}

Result<Target> parse_target(std::string_view url) {
  constexpr std::string_view kPlain = "http://", kTls = "https://";
  const bool tls = url.starts_with(kTls);
  if (!tls && !url.starts_with(kPlain)) return bad_url(url);
  const std::string_view rest = url.substr(tls ? kTls.size() : kPlain.size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  std::string_view authority = rest.substr(0, slash);
  Target target{.scheme = tls ? Scheme::https : Scheme::http,
                .host = {},
                .port = tls ? "443" : "80",
                .path = std::string(rest.substr(slash))};
  if (target.path.empty()) target.path = "/";
  const size_t colon = authority.rfind(':');
  const bool has_port =
      colon != std::string_view::npos && authority.find(']', colon) == std::string_view::npos;
  if (has_port) {
    target.port = authority.substr(colon + 1);
    authority = authority.substr(0, colon);
  }
  if (authority.starts_with('[') && authority.ends_with(']'))
    authority = authority.substr(1, authority.size() - 2);
  target.host = authority;
  uint16_t port = 0;
  const auto end =
      std::from_chars(target.port.data(), target.port.data() + target.port.size(), port);
  const bool sound = !target.host.empty() && port != 0 &&
                     end.ptr == target.port.data() + target.port.size() &&
                     url.find_first_of(" \r\n\t") == std::string_view::npos;
  if (!sound) return bad_url(url);
  return target;
}

}  // namespace

Result<void> check_filter_ca(const std::filesystem::path& ca) {
  asio::ssl::context tls{asio::ssl::context::tls_client};
  return trust(tls, ca);
}

Result<std::unique_ptr<OutputFilter>> make_http_filter(std::string_view url, FilterReport report,
                                                       const std::filesystem::path& ca) {
  Target target = TRY(parse_target(url));
  if (target.scheme == Scheme::http) {
    auto plain =
        std::make_unique<HttpFilter<PlainStream>>(url, std::move(target), std::move(report));
    plain->start();
    return std::unique_ptr<OutputFilter>(std::move(plain));
  }
  auto encrypted =
      std::make_unique<HttpFilter<TlsStream>>(url, std::move(target), std::move(report));
  TRY(trust(encrypted->tls(), ca));
  encrypted->start();
  return std::unique_ptr<OutputFilter>(std::move(encrypted));
}

}  // namespace nibble
