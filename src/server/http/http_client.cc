// Boost.Beast, asynchronously, so that one limit holds for every step.
#include "server/http/http_client.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

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

}  // namespace

Result<HttpResponse> http_send(const HttpUrl& url, const HttpRequest& request,
                               const HttpClientLimits& limits) {
  Client client(url, request, limits);
  if (const beast::error_code error = client.run(url))
    return make_error(ErrorCode::io, {.what = concat("cannot ask http://", url.host, ":", url.port,
                                                     " (", error.message(), ")")});
  return client.take();
}

}  // namespace nibble
