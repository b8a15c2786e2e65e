// Fetching images: against servers on this machine that redirect, drip, lie about their names and
// answer too much; with a resolver that changes its answer.
#include "server/images/image_fetcher.h"

#include <gtest/gtest.h>

#include <future>
#include <mutex>
#include <thread>

#include "server/http/http_server.h"
#include "server/testing/test_client.h"

namespace nibble {
namespace {

constexpr size_t kBytesMax = 1000;
constexpr const char* kHost = "img.test";

/// A server on 127.0.0.1, and what it was asked.
class Site {
 public:
  using Answer = std::function<HttpResponse(const HttpRequest&)>;
  explicit Site(Answer answer)
      : server_(
            HttpServer::listen({.port = 0},
                               [this, answer](const HttpRequest& request, const auto& exchange) {
                                 {
                                   const std::lock_guard lock(mutex_);
                                   asked_.push_back(request);
                                 }
                                 if (request.path != "/never") exchange->respond(answer(request));
                               })
                .value()),
        thread_([this] { server_->run(); }) {}
  ~Site() {
    server_->post([this] { server_->stop(); });
    thread_.join();
  }
  uint16_t port() const { return server_->port(); }
  std::string url(std::string_view path) const {
    return concat("http://", kHost, ":", port(), path);
  }
  std::vector<HttpRequest> asked() {
    const std::lock_guard lock(mutex_);
    return asked_;
  }

 private:
  std::mutex mutex_;
  std::vector<HttpRequest> asked_;
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
};

HttpResponse image(const HttpRequest&) { return {.content_type = "image/png", .body = "pixels"}; }
HttpResponse redirect(std::string location, int status = 302) {
  return {.status = status, .headers = {{"Location", std::move(location)}}};
}

/// May fetch from kHost on this port; answers of the resolver in turn, the last one again.
struct Fetching {
  explicit Fetching(uint16_t port) {
    options.hosts = ImageHosts::parse({concat(kHost, ":", port)}, ImageHosts::Plain::taken).value();
    options.time_max = std::chrono::minutes(10);
    options.may_connect = [](std::string_view address) { return address == "127.0.0.1"; };
    options.resolve = [this](const std::string& host) -> Result<std::vector<std::string>> {
      names.push_back(host);
      const size_t at = std::min(names.size(), answers.size()) - 1;
      return answers[at];
    };
  }
  Result<std::string> fetch(const std::string& url) {
    const ImageFetcher fetcher(options);
    return fetcher.fetch(url, kBytesMax, fetcher.deadline());
  }
  ImageFetcherOptions options;
  std::vector<std::vector<std::string>> answers = {{"127.0.0.1"}};
  std::vector<std::string> names;  // asked of the resolver
};

void expect_refusal(const Result<std::string>& fetched, std::string_view says) {
  ASSERT_FALSE(fetched.ok());
  EXPECT_EQ(fetched.error().code, ErrorCode::invalid_argument);
  EXPECT_NE(fetched.error().message.find(says), std::string::npos) << fetched.error().message;
  EXPECT_EQ(fetched.error().message.find('\n'), std::string::npos);
}

TEST(ImageFetcher, FetchesAndHandsNothingOn) {
  ::setenv("http_proxy", "http://127.0.0.1:9", 1);  // nobody listens there
  Site site(image);
  Fetching setup(site.port());
  const auto fetched = setup.fetch(site.url("/a.png?size=1"));
  ::unsetenv("http_proxy");
  ASSERT_TRUE(fetched.ok()) << fetched.error().message;
  EXPECT_EQ(fetched.value(), "pixels");
  EXPECT_EQ(setup.names, std::vector<std::string>{kHost});
  const HttpRequest asked = site.asked().at(0);
  EXPECT_EQ(asked.method, "GET");
  EXPECT_EQ(asked.header("host"), concat(kHost, ":", site.port()));
  for (const HttpHeader& header : asked.headers)
    EXPECT_TRUE(header.name == "host" || header.name == "user-agent" || header.name == "accept")
        << header.name;
}

TEST(ImageFetcher, TheAddressThatWasCheckedIsTheOneConnectedTo) {
  Site site(image);
  Fetching setup(site.port());
  // It would be another one when asked again; it is not asked again.
  setup.answers = {{"127.0.0.1"}, {"127.0.0.2"}};
  EXPECT_TRUE(setup.fetch(site.url("/")).ok());
  EXPECT_EQ(setup.names.size(), 1U);
  // The next fetch asks anew and is refused.
  expect_refusal(setup.fetch(site.url("/")), "private or reserved network");
  EXPECT_EQ(site.asked().size(), 1U);
}

TEST(ImageFetcher, NamesOfPrivateNetworksAreRefused) {
  Site site(image);
  Fetching setup(site.port());
  setup.answers = {{"127.0.0.1", "10.0.0.1"}};  // one of several is enough
  expect_refusal(setup.fetch(site.url("/")), "private or reserved network");
  setup.answers = {{}};
  expect_refusal(setup.fetch(site.url("/")), "a host that has an address");
  setup.options.may_connect = {};  // the rule of a server: this machine is none of the internet
  setup.answers = {{"127.0.0.1"}};
  expect_refusal(setup.fetch(site.url("/")), "private or reserved network");
  setup.options.resolve = {};
  setup.options.hosts =
      ImageHosts::parse({concat("localhost:", site.port())}, ImageHosts::Plain::taken).value();
  expect_refusal(setup.fetch(concat("http://localhost:", site.port(), "/")),
                 "private or reserved network");
  EXPECT_TRUE(site.asked().empty());
}

TEST(ImageFetcher, EveryRedirectIsCheckedAnew) {
  Site other(image);
  std::string location;
  Site site([&location](const HttpRequest& request) {
    return request.path == "/there" ? image(request) : redirect(location);
  });
  Fetching setup(site.port());
  location = "/there";
  EXPECT_EQ(setup.fetch(site.url("/")).value(), "pixels");
  EXPECT_EQ(setup.names.size(), 2U);
  const std::pair<std::string, const char*> kRows[] = {
      {other.url("/"), "a host of --allowed-media-domains"},
      {concat("http://127.0.0.1:", site.port(), "/there"), "a host of --allowed-media-domains"},
      {concat("http://user@", kHost, ":", site.port(), "/there"), "no user name"},
      {"file:///etc/passwd", "another scheme"},
      {"/", "at most 3 redirects"}};
  for (const auto& [to, says] : kRows) {
    location = to;
    expect_refusal(setup.fetch(site.url("/")), says);
  }
  // The name means another machine by the time of the redirect.
  location = "/there";
  setup.names.clear();
  setup.answers = {{"127.0.0.1"}, {"169.254.169.254"}};
  const size_t before = site.asked().size();
  expect_refusal(setup.fetch(site.url("/")), "private or reserved network");
  EXPECT_EQ(site.asked().size(), before + 1);
  EXPECT_TRUE(other.asked().empty());
}

TEST(ImageFetcher, BytesTimeAndStatus) {
  Site site([](const HttpRequest& request) -> HttpResponse {
    if (request.path == "/missing") return {.status = 404, .body = "no"};
    if (request.path == "/nowhere") return {.status = 302, .body = "no location"};
    const size_t bytes = std::stoul(request.path.substr(1));
    return {.content_type = "image/png", .body = std::string(bytes, 'x')};
  });
  Fetching setup(site.port());
  EXPECT_EQ(setup.fetch(site.url("/999")).value().size(), kBytesMax - 1);
  EXPECT_EQ(setup.fetch(site.url("/1000")).value().size(), kBytesMax);
  expect_refusal(setup.fetch(site.url("/1001")), "at most 1000 bytes");
  expect_refusal(setup.fetch(site.url("/5000000")), "at most 1000 bytes");
  expect_refusal(setup.fetch(site.url("/missing")), "found status 404");
  expect_refusal(setup.fetch(site.url("/nowhere")), "found status 302");
  setup.options.time_max = std::chrono::milliseconds(300);
  expect_refusal(setup.fetch(site.url("/never")), "an answer within 300 ms");
  const ImageFetcher late(setup.options);
  const size_t before = setup.names.size();
  expect_refusal(late.fetch(site.url("/10"), kBytesMax, ImageFetcher::Clock::now()),
                 "an answer within");
  EXPECT_EQ(setup.names.size(), before);  // the resolver was not asked
}

TEST(ImageFetcher, AResolverThatDoesNotAnswerTakesNoMoreThanTheTime) {
  Site site(image);
  Fetching setup(site.port());
  setup.options.time_max = std::chrono::milliseconds(200);
  const auto ended = std::make_shared<std::promise<void>>();
  std::future<void> end = ended->get_future();
  std::promise<void> released;
  setup.options.resolve = [wait = released.get_future().share(),
                           ended](const std::string&) -> Result<std::vector<std::string>> {
    wait.wait_for(std::chrono::minutes(2));  // a fetch that waits for it fails rather than hangs
    ended->set_value();
    return std::vector<std::string>{"127.0.0.1"};
  };
  expect_refusal(setup.fetch(site.url("/")), "an answer within 200 ms");
  EXPECT_EQ(end.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  released.set_value();
  end.wait();
  EXPECT_TRUE(site.asked().empty());
}

TEST(ImageFetcher, PlainHttpOnlyWhereAllowed) {
  Site site(image);
  Fetching setup(site.port());
  setup.options.hosts =
      ImageHosts::parse({concat(kHost, ":", site.port())}, ImageHosts::Plain::refused).value();
  expect_refusal(setup.fetch(site.url("/")), "expected https, found http");
  // A server that speaks no TLS is none for https.
  expect_refusal(setup.fetch(concat("https://", kHost, ":", site.port(), "/")),
                 "an image that can be fetched");
  EXPECT_TRUE(site.asked().empty());
}

}  // namespace
}  // namespace nibble
