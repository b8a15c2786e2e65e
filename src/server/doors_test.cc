// The ways in: Unix sockets, the administrator's own, TLS, pages of other sites, and what probes
// are told while the model loads.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>

#include "server/http/loading_door.h"
#include "server/routes/routes.h"
#include "server/testing/test_certificate.h"
#include "server/testing/test_server.h"

namespace nibble {
namespace {

using testing::get;
using testing::kChat;
using testing::post;
using testing::RawClient;

constexpr const char* kHello = R"({"messages":[{"role":"user","content":"hi"}]})";

std::string file(std::string_view name) {
  return concat(::testing::TempDir(), "door_", ::getpid(), "_", name);
}

std::string request_of(const Route& route) {
  const bool folder = route.path.size() > 1 && route.path.ends_with('/');
  return concat(route.method, " ", route.path, folder ? "tiny" : "", route.tail,
                " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
}

class DoorsTest : public testing::ServerTest {
 protected:
  std::pair<int, std::string> ask_at(const std::string& path, const std::string& request) {
    RawClient client(path);
    EXPECT_TRUE(client.connected()) << path;
    return ask(client, request);
  }
};

TEST_F(DoorsTest, AnswersOnAUnixSocket) {
  ServerOptions options;
  options.http.uds = file("api");
  start("x", options);
  EXPECT_EQ(ask_at(file("api"), post(kChat, kHello)).first, 200);
  EXPECT_EQ(ask_at(file("api"), get("/health")).first, 200);
  EXPECT_EQ(std::filesystem::status(file("api")).permissions() & std::filesystem::perms::mask,
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

TEST(Doors, ReplaceTheSocketFileOfADeadServerOnly) {
  const auto handler = [](HttpRequest, std::shared_ptr<HttpExchange>) {};
  HttpOptions options{.uds = file("dead")};
  auto first = HttpServer::listen(options, handler);
  ASSERT_TRUE(first.ok());
  const auto second = HttpServer::listen(options, handler);
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.error().message.find("--uds"), std::string::npos) << second.error().message;
  first.value().reset();
  EXPECT_FALSE(std::filesystem::exists(options.uds));
  const int left = ::socket(AF_UNIX, SOCK_STREAM, 0);  // bound, and its owner gone
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  options.uds.string().copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(left, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ::close(left);
  EXPECT_TRUE(HttpServer::listen(options, handler).ok());
  std::ofstream(options.uds) << "a file that is no socket";
  EXPECT_FALSE(HttpServer::listen(options, handler).ok());
  EXPECT_TRUE(std::filesystem::exists(options.uds));
  std::filesystem::remove(options.uds);
  options.uds = std::string(200, 'x');
  EXPECT_EQ(HttpServer::listen(options, handler).error().code, ErrorCode::invalid_argument);
}

/// Another name of a socket's file outlives the file, and shows whether anybody listens.
TEST(Doors, NobodyListensAtSocketsOfAServerThatIsDraining) {
  const HttpOptions options{.port = 0, .uds = file("clients"), .admin_uds = file("admins")};
  const auto server =
      HttpServer::listen(options, [](HttpRequest, std::shared_ptr<HttpExchange>) {}).value();
  for (const auto& socket : {options.uds, options.admin_uds}) {
    const std::string other = socket.string() + "-2";
    ASSERT_EQ(::link(socket.c_str(), other.c_str()), 0);
    EXPECT_TRUE(RawClient(other).connected());
  }
  server->stop_accepting();
  for (const auto& socket : {options.uds, options.admin_uds}) {
    const std::string other = socket.string() + "-2";
    EXPECT_FALSE(RawClient(other).connected()) << other;
    std::filesystem::remove(other);
  }
}

TEST_F(DoorsTest, AdminRoutesAnswerOnTheirSocketAlone) {
  ServerOptions options;
  options.api_keys = {"sesame"};
  options.http.admin_uds = file("admin");
  start("x", options);
  const std::string key = "Authorization: Bearer sesame\r\n";
  for (const Route& route : server_routes()) {
    std::string request = request_of(route);
    const bool reads = route.method == "GET";
    const int inside = ask_at(file("admin"), request).first;
    EXPECT_NE(inside, 401) << request;
    if (route.audience == Audience::admin) {
      EXPECT_EQ(inside, 200) << request;
      EXPECT_EQ(ask(request).first, 401) << request;
      request.insert(request.find("\r\n") + 2, key);
      EXPECT_EQ(ask(request).first, 403) << request;
    } else if (!reads) {
      EXPECT_TRUE(inside == 404 || inside == 405) << request << inside;
    }
  }
}

constexpr const char* kAdminPaths[] = {"/sleep", "/wake_up", "/cancel_all"};

TEST_F(DoorsTest, ClientsAreToldWhereAdminRoutesAnswer) {
  start("x");
  for (const char* path : kAdminPaths)
    for (const char* method : {"POST ", "GET ", "DELETE "}) {
      const auto [status, body] =
          ask(concat(method, path, " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"));
      EXPECT_EQ(status, 403) << method << path;
      EXPECT_NE(body.find("--enable-admin-routes"), std::string::npos) << body;
      EXPECT_NE(body.find("--admin-socket"), std::string::npos) << body;
    }
  EXPECT_EQ(ask(get("/is_sleeping")).second, R"({"is_sleeping":false})");
}

TEST_F(DoorsTest, AFlagOpensAdminRoutesToClientsWithAKey) {
  ServerOptions options;
  options.api_keys = {"sesame"};
  options.admin_routes = AdminRoutes::on_every_socket;
  options.http.admin_uds = file("admin3");
  start("x", options);
  for (const char* path : kAdminPaths) {
    const auto request = [&](const char* headers) {
      return concat("POST ", path, " HTTP/1.1\r\nHost: localhost\r\n", headers,
                    "Content-Length: 0\r\n\r\n");
    };
    EXPECT_EQ(ask(request("")).first, 401) << path;
    EXPECT_EQ(ask(request("Authorization: Bearer sesame\r\n")).first, 200) << path;
    EXPECT_EQ(ask_at(file("admin3"), request("")).first, 200) << path;
  }
}

TEST_F(DoorsTest, TheAdministratorCancelsAll) {
  ServerOptions options;
  options.http.admin_uds = file("admin2");
  start_script(testing::script_of(std::string(600, 'x')), options, std::chrono::milliseconds(50));
  RawClient client(server_->port());
  client.send(post(kChat, R"({"messages":[{"role":"user","content":"hi"}],"stream":true})"));
  client.read_until("data: ");
  const std::string all =
      "POST /cancel_all HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n";
  EXPECT_EQ(ask_at(file("admin2"), all).second, R"({"cancelled":1})");
  EXPECT_NE(client.read_until("0\r\n\r\n").find("data: "), std::string::npos);
  EXPECT_EQ(ask_at(file("admin2"), all).second, R"({"cancelled":0})");
}

TEST_F(DoorsTest, PagesOfNamedSitesMayReadAnswers) {
  ServerOptions options;
  options.api_keys = {"sesame"};
  options.allowed_origins = {"https://good.example"};
  start("x", options);
  const auto preflight = [](std::string_view origin) {
    return concat("OPTIONS ", kChat, " HTTP/1.1\r\nHost: localhost\r\nOrigin: ", origin,
                  "\r\nAccess-Control-Request-Method: POST\r\n"
                  "Access-Control-Request-Headers: authorization,content-type\r\n\r\n");
  };
  EXPECT_EQ(ask(preflight("https://good.example")).first, 200);
  EXPECT_EQ(header("Access-Control-Allow-Origin"), "https://good.example");
  EXPECT_EQ(header("Access-Control-Allow-Headers"), "authorization,content-type");
  EXPECT_EQ(ask(preflight("https://evil.example")).first, 401);
  EXPECT_EQ(header("Access-Control-Allow-Origin"), "");
  const std::string key = "Authorization: Bearer sesame\r\n";
  EXPECT_EQ(ask(post(kChat, kHello, concat(key, "Origin: https://good.example\r\n"))).first, 200);
  EXPECT_EQ(header("Access-Control-Allow-Origin"), "https://good.example");
  EXPECT_EQ(header("Vary"), "Origin");
  EXPECT_EQ(ask(post(kChat, kHello, key)).first, 200);
  EXPECT_EQ(header("Access-Control-Allow-Origin"), "");
}

TEST_F(DoorsTest, ProbesAreToldHowFarTheModelIs) {
  std::atomic<double> part = 0.42;
  ServerOptions options;
  options.http.port = 0;
  options.door = LoadingDoor::open(options.http, [&] { return part.load(); }).value();
  RawClient early(options.door->port());
  EXPECT_EQ(ask(early, get("/health")).second, R"({"status":"loading","progress":0.42})");
  EXPECT_EQ(ask(early, get("/ready")).first, 503);
  EXPECT_EQ(header("Retry-After"), "1");
  EXPECT_EQ(ask(early, get("/live")).first, 200);
  EXPECT_EQ(ask(early, post(kChat, kHello)).first, 503);
  part = 7.0;
  EXPECT_EQ(ask(early, get("/health")).second, R"({"status":"loading","progress":0.99})");
  const uint16_t port = options.door->port();
  start("x", std::move(options));
  EXPECT_EQ(server_->port(), port);
  EXPECT_EQ(ask(early, get("/health")).second, R"({"status":"ok"})");  // on the same connection
  EXPECT_EQ(ask(early, post(kChat, kHello)).first, 200);
}

/// The answer that a TLS client of at most this version gets to a request; empty if there is no
/// handshake.
std::string ask_encrypted(uint16_t port, const std::string& request, int version_most,
                          const std::string& certificate = "", const std::string& key = "") {
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  SSL_CTX_set_max_proto_version(context, version_most);
  SSL_CTX_set_security_level(context, 0);
  if (!certificate.empty()) {
    SSL_CTX_use_certificate_file(context, certificate.c_str(), SSL_FILETYPE_PEM);
    SSL_CTX_use_PrivateKey_file(context, key.c_str(), SSL_FILETYPE_PEM);
  }
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string answer;
  if (::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
    SSL* ssl = SSL_new(context);
    SSL_set_fd(ssl, socket);
    if (SSL_connect(ssl) == 1) {
      SSL_write(ssl, request.data(), static_cast<int>(request.size()));
      char bytes[4096];
      const int size = SSL_read(ssl, bytes, sizeof bytes);
      if (size > 0) answer.assign(bytes, static_cast<size_t>(size));
    }
    SSL_free(ssl);
  }
  ::close(socket);
  SSL_CTX_free(context);
  return answer;
}

class TlsTest : public DoorsTest {
 protected:
  void SetUp() override {
    testing::write_certificate({file("cert.pem"), file("key.pem")});
    testing::write_certificate({file("other_cert.pem"), file("other_key.pem")});
    options_.http.tls = {.certificate = file("cert.pem"), .key = file("key.pem")};
  }
  std::string ask_tls(int version, const std::string& certificate = "",
                      const std::string& key = "") {
    return ask_encrypted(server_->port(), get("/health"), version, certificate, key).substr(0, 15);
  }
  ServerOptions options_;
};

TEST_F(TlsTest, SpeaksVersionsFrom12) {
  start("x", options_);
  EXPECT_EQ(ask_tls(TLS1_3_VERSION), "HTTP/1.1 200 OK");
  EXPECT_EQ(ask_tls(TLS1_2_VERSION), "HTTP/1.1 200 OK");
  EXPECT_EQ(ask_tls(TLS1_1_VERSION), "");
  RawClient plain(server_->port());
  plain.send(get("/health"));
  EXPECT_EQ(plain.read_all().find("HTTP"), std::string::npos);
}

/// The serial number of the certificate that the server shows; -1: none.
long shown_serial(uint16_t port) {
  long serial = -1;
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  BIO* bio = BIO_new_ssl_connect(context);
  BIO_set_conn_hostname(bio, concat("127.0.0.1:", port).c_str());
  SSL* ssl = nullptr;
  BIO_get_ssl(bio, &ssl);
  if (BIO_do_handshake(bio) == 1) {
    X509* shown = SSL_get1_peer_certificate(ssl);
    serial = ASN1_INTEGER_get(X509_get0_serialNumber(shown));
    X509_free(shown);
  }
  BIO_free_all(bio);
  SSL_CTX_free(context);
  return serial;
}

TEST_F(TlsTest, FollowsItsFilesAndKeepsTheOldOnesWhenTheyBreak) {
  options_.key_check = std::chrono::milliseconds(5);
  start("x", options_);
  const long first = shown_serial(server_->port());
  EXPECT_GT(first, 0);
  std::filesystem::rename(file("other_cert.pem"), file("cert.pem"));  // not of this key
  wait_for_log("the certificates in use stay");
  EXPECT_EQ(shown_serial(server_->port()), first);
  std::filesystem::rename(file("other_key.pem"), file("key.pem"));
  wait_for_log("the certificates have changed");
  long serial = first;
  EXPECT_TRUE(testing::soon([&] { return (serial = shown_serial(server_->port())) != first; }));
  EXPECT_EQ(serial, first + 1);
  EXPECT_EQ(ask_tls(TLS1_3_VERSION), "HTTP/1.1 200 OK");
}

TEST_F(TlsTest, MayAskForAClientsCertificate) {
  options_.http.tls.ca_certs = file("other_cert.pem");
  start("x", options_);
  EXPECT_EQ(ask_tls(TLS1_2_VERSION), "");
  EXPECT_EQ(ask_tls(TLS1_2_VERSION, file("cert.pem"), file("key.pem")), "");
  EXPECT_EQ(ask_tls(TLS1_2_VERSION, file("other_cert.pem"), file("other_key.pem")),
            "HTTP/1.1 200 OK");
}

TEST_F(TlsTest, GivesUpOnHandshakesThatDoNotCome) {
  options_.http.limits.header_wait = std::chrono::milliseconds(50);
  start("x", options_);
  RawClient silent(server_->port());
  EXPECT_EQ(silent.read_all(), "");
  EXPECT_TRUE(silent.closed());
}

/// Bytes that are no TLS after a handshake that was: the connection ends.
TEST_F(TlsTest, EndsAConnectionThatTurnsToNonsense) {
  options_.http.limits.header_wait = testing::kPatience;
  start("x", options_);
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  BIO* bio = BIO_new_ssl_connect(context);
  BIO_set_conn_hostname(bio, concat("127.0.0.1:", server_->port()).c_str());
  ASSERT_EQ(BIO_do_handshake(bio), 1);
  const int socket = static_cast<int>(BIO_get_fd(bio, nullptr));
  const std::string nonsense(64, 'x');
  EXPECT_EQ(::send(socket, nonsense.data(), nonsense.size(), MSG_NOSIGNAL), 64);
  char bytes[4096];
  while (::recv(socket, bytes, sizeof bytes, 0) > 0) {
  }
  BIO_free_all(bio);
  SSL_CTX_free(context);
  EXPECT_EQ(ask_tls(TLS1_3_VERSION), "HTTP/1.1 200 OK");
}

TEST_F(TlsTest, SaysWhichFileDoesNotFit) {
  const auto why = [&](TlsFiles files) {
    const auto server = HttpServer::listen({.port = 0, .tls = std::move(files)},
                                           [](HttpRequest, std::shared_ptr<HttpExchange>) {});
    return server.ok() ? "" : server.error().message;
  };
  const std::string good = file("cert.pem");
  EXPECT_EQ(why({.certificate = good, .key = file("key.pem")}), "");
  EXPECT_NE(why({.certificate = "/no", .key = file("key.pem")}).find("--ssl-certfile /no"),
            std::string::npos);
  EXPECT_NE(why({.certificate = good, .key = good}).find("--ssl-keyfile"), std::string::npos);
  EXPECT_NE(why({.certificate = good, .key = file("other_key.pem")}).find("--ssl-keyfile"),
            std::string::npos);
  EXPECT_NE(why({.certificate = good, .key = file("key.pem"), .ca_certs = "/no"})
                .find("--ssl-ca-certs /no"),
            std::string::npos);
}

}  // namespace
}  // namespace nibble
