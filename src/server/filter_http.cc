// A service that is asked by POST: {"id","place","text"} as JSON, status 200 and
// {"verdict":"pass"|"hit"} back. Plain HTTP; connections are kept for the next question.
#include <boost/asio/connect.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <charconv>
#include <optional>
#include <thread>
#include <vector>

#include "server/output_filter.h"

namespace nibble {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using ErrorCodeOf = boost::system::error_code;

constexpr size_t kOpenMax = 256;              // questions at once
constexpr size_t kIdleMax = 16;               // connections kept
constexpr uint64_t kAnswerBytesMax = 65'536;  // of a verdict
constexpr std::chrono::seconds kStepMax{60};  // of a connection; the question's own limit is above

struct Target {
  std::string host, port, path;
  std::string authority() const { return port == "80" ? host : concat(host, ":", port); }
};

/// What all questions share; used on the filter's thread alone.
struct Shared {
  explicit Shared(Target where) : target(std::move(where)) {}
  Target target;
  size_t open = 0;
  uint64_t last_id = 0;
  asio::io_context io{1};  // its end ends the exchanges, which count
  std::vector<std::unique_ptr<beast::tcp_stream>> idle;
};

/// One question: connects or takes a kept connection, writes, reads. A kept one may have been
/// closed meanwhile: then a fresh one is tried once.
class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(Shared& shared, OutputFilter::Question question, OutputFilter::Answer answer)
      : shared_(shared),
        question_(std::move(question)),
        answer_(std::move(answer)),
        resolver_(shared.io),
        stream_(std::make_unique<beast::tcp_stream>(shared.io)) {
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
    resolver_.async_resolve(shared_.target.host, shared_.target.port,
                            [self = shared_from_this()](ErrorCodeOf error, const auto& found) {
                              if (error) return;
                              self->stream_->expires_after(kStepMax);
                              self->stream_->async_connect(found,
                                                           [self](ErrorCodeOf failed, const auto&) {
                                                             if (!failed) self->write();
                                                           });
                            });
  }

  void write() {
    stream_->expires_after(kStepMax);
    http::async_write(*stream_, request_, [self = shared_from_this()](ErrorCodeOf error, size_t) {
      if (error) return self->again();
      self->read();
    });
  }

  void read() {
    parser_.emplace();
    parser_->body_limit(kAnswerBytesMax);
    buffer_.clear();
    http::async_read(*stream_, buffer_, *parser_,
                     [self = shared_from_this()](ErrorCodeOf error, size_t) {
                       if (error) return self->again();
                       self->hear();
                     });
  }

  void again() {
    if (!kept_) return;
    stream_ = std::make_unique<beast::tcp_stream>(shared_.io);
    connect();
  }

  void hear() {
    const auto& response = parser_->get();
    const FilterVerdict verdict =
        response.result() == http::status::ok ? verdict_in(response.body()) : FilterVerdict::failed;
    if (response.keep_alive() && shared_.idle.size() < kIdleMax) {
      stream_->expires_never();
      shared_.idle.push_back(std::move(stream_));
    }
    std::exchange(answer_, {})(verdict);
  }

  Shared& shared_;
  OutputFilter::Question question_;
  OutputFilter::Answer answer_;
  asio::ip::tcp::resolver resolver_;
  std::unique_ptr<beast::tcp_stream> stream_;
  beast::flat_buffer buffer_;
  http::request<http::string_body> request_;
  std::optional<http::response_parser<http::string_body>> parser_;
  bool kept_ = false;
};

class HttpFilter final : public OutputFilter {
 public:
  HttpFilter(std::string_view url, Target target)
      : name_(url), shared_(std::move(target)), work_(shared_.io.get_executor()) {
    thread_ = std::thread([this] { shared_.io.run(); });
  }
  ~HttpFilter() override {
    work_.reset();
    shared_.io.stop();
    thread_.join();
  }
  std::string_view name() const override { return name_; }

  void ask(Question question, Answer answer) override {
    asio::post(
        shared_.io, [this, question = std::move(question), answer = std::move(answer)]() mutable {
          if (shared_.open >= kOpenMax) return answer(FilterVerdict::failed);
          std::make_shared<Exchange>(shared_, std::move(question), std::move(answer))->start();
        });
  }

 private:
  std::string name_;
  Shared shared_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<OutputFilter>> make_http_filter(std::string_view url) {
  constexpr std::string_view kScheme = "http://";
  const std::string_view rest = url.starts_with(kScheme) ? url.substr(kScheme.size()) : "";
  const size_t slash = std::min(rest.find('/'), rest.size());
  std::string_view authority = rest.substr(0, slash);
  Target target{.host = {}, .port = "80", .path = std::string(rest.substr(slash))};
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
  if (!sound)
    return make_error(ErrorCode::invalid_argument,
                      {.what = "--filter", .expected = "http://HOST[:PORT]/PATH", .found = url});
  return std::unique_ptr<OutputFilter>(std::make_unique<HttpFilter>(url, std::move(target)));
}

}  // namespace nibble
