// A server tells about itself: its counts, its pools, its fingerprint.
#include <gtest/gtest.h>

#include "server/testing/test_server.h"

namespace nibble {
namespace {

using testing::get;
using testing::kCompletions;
using testing::post;

class AboutItself : public testing::ServerTest {
 protected:
  ServedModel model() const override {
    ServedModel made = testing::ServerTest::model();
    made.context_max = context_;
    made.created = std::chrono::duration_cast<std::chrono::seconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count() -
                   1000;
    return made;
  }
  int32_t context_ = 1024;
};

TEST_F(AboutItself, StatsTellOfTheServer) {
  ServerOptions options;
  options.memory_map = {{"weights", 12}, {"host", 34, MemoryPart::Place::host}};
  options.admin_routes = AdminRoutes::on_every_socket;
  start("yes", options);
  const auto stats = [&] { return parse_json(ask(get("/stats")).second, "stats").value(); };
  const std::string prompt(300, 'p');
  for (int round = 0; round < 2; ++round)
    EXPECT_EQ(
        ask(post(kCompletions, concat(R"({"prompt":")", prompt, R"(","max_tokens":2})"))).first,
        200);
  const Json told = stats();
  EXPECT_EQ(at(told, "model"), Json("tiny"));
  EXPECT_EQ(at(told, "backend"), Json("scripted"));
  EXPECT_EQ(at(told, "max_model_len").as_int(), 1024);
  EXPECT_GE(at(told, "uptime_seconds").as_int(), 1000);
  EXPECT_LT(at(told, "uptime_seconds").as_int(), 1000 + 3600);
  EXPECT_EQ(at(at(told, "tokens"), "prompt").as_int(), 600);
  EXPECT_EQ(at(at(told, "tokens"), "generated").as_int(), 4);
  EXPECT_EQ(at(at(told, "prefix"), "lookup_tokens").as_int(), 600);
  EXPECT_GE(at(at(told, "prefix"), "hit_tokens").as_int(), 128);
  EXPECT_GE(at(at(told, "passes"), "count").as_int(), 2);
  EXPECT_EQ(at(told, "memory").dump(), R"([{"name":"weights","place":"device","bytes":12},)"
                                       R"({"name":"host","place":"host","bytes":34}])");
  const Json::Array& pools = at(told, "pools").as_array();
  EXPECT_EQ(at(pools.at(0), "total").as_int(), 64);
  EXPECT_EQ(at(pools.at(1), "total").as_int(), 4);
  EXPECT_EQ(ask("POST /sleep HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n").first, 200);
  EXPECT_EQ(at(stats(), "state"), Json("asleep"));
}

/// Answers of other numbers are of another fingerprint: here the context has another length.
TEST_F(AboutItself, TheFingerprintIsOfTheModelAsItIsServed) {
  const auto print = [&](int32_t context) {
    context_ = context;
    start("yes");
    const std::string text = at(chat(""), "system_fingerprint").as_string();
    AboutItself::TearDown();
    return text;
  };
  const std::string first = print(1024);
  EXPECT_EQ(first.size(), 3U + 10U) << first;
  EXPECT_EQ(first.find_first_not_of("0123456789abcdef", 3), std::string::npos) << first;
  EXPECT_EQ(print(1024), first);
  EXPECT_NE(print(512), first);
}

}  // namespace
}  // namespace nibble
