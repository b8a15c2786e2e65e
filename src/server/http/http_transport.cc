// Plain and encrypted sockets under one face.
#include "server/http/http_transport.h"

#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>

namespace nibble {

namespace asio = boost::asio;
namespace ssl = boost::asio::ssl;

namespace {

void shut_down(HttpTransport::Socket& socket) {
  HttpTransport::ErrorCode ignored;
  socket.shutdown(asio::socket_base::shutdown_send, ignored);
}

class PlainTransport final : public HttpTransport {
 public:
  explicit PlainTransport(Socket socket) : socket_(std::move(socket)) {
    ErrorCode ignored;
    socket_.non_blocking(true, ignored);
  }
  asio::any_io_executor executor() override { return socket_.get_executor(); }
  void handshake(std::function<void(ErrorCode)> done) override { done({}); }
  void read_some(asio::mutable_buffer buffer, Moved done) override {
    socket_.async_read_some(buffer, std::move(done));
  }
  size_t write_now(asio::const_buffer buffer) override {
    ErrorCode later;  // an error is told by write_some()
    return socket_.non_blocking() ? socket_.write_some(buffer, later) : 0;
  }
  void write_some(asio::const_buffer buffer, Moved done) override {
    socket_.async_write_some(buffer, std::move(done));
  }
  bool wait_for_end(std::function<void()> ended) override {
    socket_.async_wait(Socket::wait_error, [ended = std::move(ended)](ErrorCode error) {
      if (error != asio::error::operation_aborted) ended();
    });
    return true;
  }
  void shutdown_send() override { shut_down(socket_); }
  void close() override {
    ErrorCode ignored;
    socket_.close(ignored);
  }

 private:
  Socket socket_;
};

class TlsTransport final : public HttpTransport {
 public:
  TlsTransport(Socket socket, const std::shared_ptr<ssl::context>& context)
      : context_(context), stream_(std::move(socket), *context) {}
  asio::any_io_executor executor() override { return stream_.get_executor(); }
  void handshake(std::function<void(ErrorCode)> done) override {
    stream_.async_handshake(ssl::stream_base::server, std::move(done));
  }
  void read_some(asio::mutable_buffer buffer, Moved done) override {
    stream_.async_read_some(buffer, std::move(done));
  }
  size_t write_now(asio::const_buffer) override { return 0; }
  void write_some(asio::const_buffer buffer, Moved done) override {
    stream_.async_write_some(buffer, std::move(done));
  }
  bool wait_for_end(std::function<void()>) override { return false; }
  // No close_notify: it could only be sent once the pending read is over. Every answer but those to
  // HTTP/1.0 streams says where it ends.
  void shutdown_send() override { shut_down(stream_.next_layer()); }
  void close() override {
    ErrorCode ignored;
    stream_.next_layer().close(ignored);
  }

 private:
  std::shared_ptr<ssl::context> context_;
  ssl::stream<Socket> stream_;
};

Error file_error(std::string_view flag, const std::filesystem::path& path,
                 std::string_view expected, const HttpTransport::ErrorCode& error) {
  return make_error(
      ErrorCode::invalid_argument,
      {.what = concat(flag, " ", path.string()), .expected = expected, .found = error.message()});
}

}  // namespace

std::unique_ptr<HttpTransport> plain_transport(HttpTransport::Socket socket) {
  return std::make_unique<PlainTransport>(std::move(socket));
}

std::unique_ptr<HttpTransport> tls_transport(HttpTransport::Socket socket,
                                             const std::shared_ptr<ssl::context>& context) {
  return std::make_unique<TlsTransport>(std::move(socket), context);
}

Result<std::shared_ptr<ssl::context>> tls_context(const TlsFiles& files) {
  const auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
  context->set_options(ssl::context::default_workarounds | ssl::context::no_sslv2 |
                       ssl::context::no_sslv3 | ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1 |
                       SSL_OP_NO_RENEGOTIATION);
  HttpTransport::ErrorCode error;
  context->use_certificate_chain_file(files.certificate.string(), error);
  if (error)
    return file_error("--ssl-certfile", files.certificate, "a certificate in PEM form", error);
  context->use_private_key_file(files.key.string(), ssl::context::pem, error);
  if (error)
    return file_error("--ssl-keyfile", files.key,
                      "the certificate's private key, in PEM form and without a password", error);
  if (files.ca_certs.empty()) return context;
  context->load_verify_file(files.ca_certs.string(), error);
  if (error) return file_error("--ssl-ca-certs", files.ca_certs, "certificates in PEM form", error);
  context->set_verify_mode(ssl::verify_peer | ssl::verify_fail_if_no_peer_cert);
  return context;
}

}  // namespace nibble
