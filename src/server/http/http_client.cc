// Boost.Beast, asynchronously, so that one limit holds for every step.
#include "server/http/http_client.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <charconv>

#include "base/json.h"

namespace nibble {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

namespace {

class Client {
 public:
  Client(const HttpUrl& url, const HttpRequest& request, const HttpClientLimits& limits)
      : limits_(limits) {
    message_.method_string(request.method);
    message_.target(request.path);
    message_.set(http::field::host, concat(url.host, ":", url.port));
    for (const HttpHeader& header : request.headers) message_.set(header.name, header.value);
    message_.body() = request.body;
    message_.prepare_payload();
    parser_.body_limit(limits.body_bytes_max);
  }

  /// The error that stopped it, if one did.
  beast::error_code run(const HttpUrl& url) {
    resolver_.async_resolve(
        url.host, concat(url.port), [this](beast::error_code error, auto found) {
          if (error) return done(error);
          stream_.async_connect(found, [this](beast::error_code failed, const auto&) {
            if (failed) return done(failed);
            send();
          });
        });
    io_.run_for(limits_.wait);
    return done_ ? error_ : beast::error_code(beast::error::timeout);
  }
  HttpResponse take() {
    HttpResponse response{.status = static_cast<int>(parser_.get().result_int()),
                          .content_type = "",
                          .body = std::move(parser_.get().body())};
    for (const auto& field : parser_.get()) {
      std::string name(field.name_string());
      beast::string_view value = field.value();
      if (beast::iequals(name, "content-type")) response.content_type = std::string(value);
      response.headers.push_back({std::move(name), std::string(value)});
    }
    return response;
  }

 private:
  void send() {
    http::async_write(stream_, message_, [this](beast::error_code error, size_t) {
      if (error) return done(error);
      http::async_read(stream_, buffer_, parser_,
                       [this](beast::error_code failed, size_t) { done(failed); });
    });
  }
  void done(beast::error_code error) {
    done_ = true;
    error_ = error;
  }

  HttpClientLimits limits_;
  http::request<http::string_body> message_{http::verb::get, "/", 11};
  asio::io_context io_{1};
  asio::ip::tcp::resolver resolver_{io_};
  beast::tcp_stream stream_{io_};
  beast::flat_buffer buffer_;
  http::response_parser<http::string_body> parser_;
  bool done_ = false;
  beast::error_code error_;
};

Error bad_url(std::string_view url) {
  return make_error(ErrorCode::invalid_argument, {.what = "a URL",
                                                  .expected = "http://HOST[:PORT][/PATH]",
                                                  .found = Json(url.substr(0, 200)).dump()});
}

}  // namespace

Result<HttpUrl> parse_http_url(std::string_view url) {
  constexpr std::string_view kScheme = "http://";
  if (url.starts_with("https://"))
    return make_error(ErrorCode::unsupported,
                      {.what = "https is not spoken by this command", .found = url.substr(0, 200)});
  if (!url.starts_with(kScheme)) return bad_url(url);
  std::string_view rest = url.substr(kScheme.size());
  const size_t slash = rest.find('/');
  HttpUrl parsed{.path = std::string(slash == std::string_view::npos ? "/" : rest.substr(slash))};
  std::string_view host = rest.substr(0, slash);
  const size_t bracket = host.find(']');
  const size_t colon = host.find(':', bracket == std::string_view::npos ? 0 : bracket);
  if (colon != std::string_view::npos) {
    const std::string_view port = host.substr(colon + 1);
    const auto end = std::from_chars(port.data(), port.data() + port.size(), parsed.port);
    if (end.ec != std::errc() || end.ptr != port.data() + port.size()) return bad_url(url);
    host = host.substr(0, colon);
  }
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const bool odd = host.find_first_of(" @?#[]\r\n\t") != std::string_view::npos ||
                   url.find_first_of(" \r\n\t") != std::string_view::npos;
  if (host.empty() || odd) return bad_url(url);
  parsed.host = host;
  return parsed;
}

Result<HttpResponse> http_send(const HttpUrl& url, const HttpRequest& request,
                               const HttpClientLimits& limits) {
  Client client(url, request, limits);
  if (const beast::error_code error = client.run(url))
    return make_error(ErrorCode::io, {.what = concat("cannot ask http://", url.host, ":", url.port,
                                                     " (", error.message(), ")")});
  return client.take();
}

}  // namespace nibble
