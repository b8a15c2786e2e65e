// A filter asks its service again on the connection that it has.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <thread>

#include "server/filters/output_filter.h"
#include "testing/soon.h"

namespace nibble {
namespace {

/// A service that takes one connection and no other, and passes all that it is asked there.
class OneConnection {
 public:
  OneConnection() {
    sockaddr_in address{.sin_family = AF_INET};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* where = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(door_, where, size), 0);
    EXPECT_EQ(::listen(door_, 1), 0);
    EXPECT_EQ(::getsockname(door_, where, &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { run(); });
  }
  ~OneConnection() { thread_.join(); }
  std::string url() const { return concat("http://127.0.0.1:", port_, "/judge"); }

 private:
  void run() const {
    const int client = ::accept(door_, nullptr, nullptr);
    ::close(door_);
    std::string asked;
    char piece[4096];
    for (ssize_t count = 0; (count = ::read(client, piece, sizeof piece)) > 0;) {
      asked.append(piece, static_cast<size_t>(count));
      if (!asked.ends_with('}')) continue;
      asked.clear();
      constexpr std::string_view kPass =
          "HTTP/1.1 200 OK\r\nContent-Length: 18\r\n\r\n{\"verdict\":\"pass\"}";
      EXPECT_EQ(::write(client, kPass.data(), kPass.size()), std::ssize(kPass));
    }
    ::close(client);
  }

  int door_ = ::socket(AF_INET, SOCK_STREAM, 0);
  uint16_t port_ = 0;
  std::thread thread_;
};

FilterVerdict ask(OutputFilter& filter, std::string text) {
  auto said = std::make_shared<std::promise<FilterVerdict>>();
  filter.ask(
      std::make_shared<const FilterQuestion>(FilterQuestion{FilterPlace::content, std::move(text)}),
      [said](FilterVerdict verdict) { said->set_value(verdict); });
  auto coming = said->get_future();
  const bool came = coming.wait_for(testing::kPatience) == std::future_status::ready;
  return came ? coming.get() : FilterVerdict::failed;
}

TEST(HttpFilter, AConnectionIsKeptForTheNextQuestion) {
  const OneConnection service;
  const auto filter = make_filter("http:" + service.url(), {}).value();
  for (const char* text : {"one", "two", "three"})
    EXPECT_EQ(ask(*filter, text), FilterVerdict::pass) << text;
}

}  // namespace
}  // namespace nibble
