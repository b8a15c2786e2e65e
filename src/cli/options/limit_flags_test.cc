// Every row of kLimitFlags over a socket: one below the bound and the bound itself are taken, one
// above is refused in words that name the bound. Times: who is faster is served, who is slower is
// not. The limits of compiling structures are tested at their bounds in src/grammar.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <set>

#include "cli/serving/client_setup.h"
#include "cli/serving/server_options.h"
#include "server/testing/test_server.h"

namespace nibble {
namespace {

using testing::get;
using testing::kChat;
using testing::kCompletions;
using testing::post;
using testing::RawClient;

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

Result<ServerOptions> options_of(const std::string& flag, const std::string& value) {
  Terminal terminal;
  const std::vector<std::string> words = {"folder", concat("--", flag), value};
  const Arguments arguments = TRY(parse_arguments(
      kServeVerb, words, [](const std::string&) -> std::optional<std::string> { return {}; }));
  ServerOptions options = TRY(read_server_options(arguments, terminal));
  options.http.port = 0;
  return options;
}

// ------------------------------------------------------------------ what a request may hold

std::string repeated(std::string_view item, int64_t count) {
  std::string list;
  for (int64_t i = 0; i < count; ++i) list += concat(i > 0 ? "," : "", item);
  return list;
}
std::string letters(int64_t count, char letter = 'a') {
  return std::string(static_cast<size_t>(count), letter);
}

std::string chat_body(const std::string& fields) {
  return concat(R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":1)", fields, "}");
}
std::string chat(const std::string& fields) { return post(kChat, chat_body(fields)); }
std::string completion(const std::string& fields) {
  return post(kCompletions, concat(R"({"max_tokens":1,)", fields, "}"));
}
std::string schema(const std::string& text) {
  return chat(concat(R"(,"response_format":{"type":"json_schema","json_schema":{"name":"s",)",
                     R"("schema":)", text, "}}"));
}

/// Headers of so many bytes, most of them in a line or in the path.
std::string long_line(int64_t bytes) {
  const auto rest = static_cast<int64_t>(get("/health", "X-Long: \r\n").size());
  return get("/health", concat("X-Long: ", letters(bytes - rest), "\r\n"));
}
std::string long_path(int64_t bytes) {
  const auto rest = static_cast<int64_t>(get("/health?").size());
  return get(concat("/health?", letters(bytes - rest)));
}

std::string chat_of_bytes(int64_t bytes) {
  const auto rest = static_cast<int64_t>(chat_body(R"(,"user":"")").size());
  return chat(concat(R"(,"user":")", letters(bytes - rest), "\""));
}

std::string nested_schema(int64_t depth) {
  std::string text = R"({"type":"string"})";
  for (int64_t i = 1; i < depth; ++i)
    text = concat(R"({"type":"object","properties":{"a":)", text,
                  R"(},"required":["a"],"additionalProperties":false})");
  return schema(text);
}

std::string wide_schema(int64_t nodes) {
  std::string members;
  for (int64_t i = 1; i < nodes; ++i)
    members += concat(i > 1 ? "," : "", "\"p", i, R"(":{"type":"null"})");
  return schema(
      concat(R"({"type":"object","properties":{)", members, R"(},"additionalProperties":false})"));
}

std::string biased(int64_t entries) {
  std::string list;
  for (int64_t i = 0; i < entries; ++i) list += concat(i > 0 ? "," : "", "\"", i, "\":1");
  return chat(concat(",\"logit_bias\":{", list, "}"));
}

std::string choices(int64_t count) {
  std::string list;
  for (int64_t i = 0; i < count; ++i) list += concat(i > 0 ? "," : "", "\"c", i, "\"");
  return chat(concat(",\"structured_outputs\":{\"choice\":[", list, "]}"));
}

struct LimitCase {
  const char* flag;
  const char* what;  // of the limit, where a flag has several
  int64_t bound;
  int status;                       // of a refusal
  std::string (*request)(int64_t);  // that uses so much of it
};

const LimitCase kCases[] = {
    {"max-header-bytes", "a line", 1100, 431, long_line},
    {"max-header-bytes", "the path", 1100, 431, long_path},
    {"max-header-lines", "", 6, 431,
     [](int64_t n) {
       std::string lines;
       for (int64_t i = 1; i < n; ++i) lines += concat("X-", i, ": 1\r\n");  // and Host
       return get("/health", lines);
     }},
    {"max-request-bytes", "", 2000, 413, chat_of_bytes},
    {"max-body-memory", "", 2000, 413, chat_of_bytes},
    {"max-json-depth", "", 6, 400,
     [](int64_t n) {
       return chat(concat(",\"x\":", letters(n - 1, '['), "1", letters(n - 1, ']')));
     }},
    {"max-messages", "", 6, 400,
     [](int64_t n) {
       return post(kChat, concat(R"({"max_tokens":1,"messages":[)",
                                 repeated(R"({"role":"user","content":"hi"})", n), "]}"));
     }},
    {"max-tools", "", 6, 400,
     [](int64_t n) {
       return chat(concat(",\"tools\":[",
                          repeated(R"({"type":"function","function":{"name":"f"}})", n), "]"));
     }},
    {"max-choices", "n", 6, 400, [](int64_t n) { return chat(concat(",\"n\":", n)); }},
    {"max-choices", "prompts", 6, 400,
     [](int64_t n) { return completion(concat("\"prompt\":[", repeated("\"a\"", n), "]")); }},
    {"max-choices", "prompts of ids", 6, 400,
     [](int64_t n) { return completion(concat("\"prompt\":[", repeated("[65]", n), "]")); }},
    {"max-choices", "n times prompts", 6, 400,
     [](int64_t n) {  // 5 = 5 x 1, 6 = 3 x 2, 7: 4 x 2
       return completion(concat("\"n\":", n == 5 ? 1 : 2, ",\"prompt\":[",
                                repeated("\"a\"", n == 5 ? 5 : n - 3), "]"));
     }},
    {"max-logprobs", "top_logprobs", 6, 400,
     [](int64_t n) { return chat(concat(",\"logprobs\":true,\"top_logprobs\":", n)); }},
    {"max-logprobs", "logprobs", 6, 400,
     [](int64_t n) { return completion(concat("\"prompt\":\"a\",\"logprobs\":", n)); }},
    {"max-logprobs", "prompt_logprobs", 6, 400,
     [](int64_t n) { return completion(concat("\"prompt\":\"a\",\"prompt_logprobs\":", n)); }},
    {"max-stop-strings", "", 6, 400,
     [](int64_t n) { return chat(concat(",\"stop\":[", repeated("\"a\"", n), "]")); }},
    {"max-stop-bytes", "", 6, 400,
     [](int64_t n) { return chat(concat(",\"stop\":[\"", letters(n), "\"]")); }},
    {"max-logit-bias", "", 6, 400, biased},
    {"max-structure-bytes", "", 100, 400,
     [](int64_t n) {
       return chat(concat(",\"structured_outputs\":{\"regex\":\"", letters(n), "\"}"));
     }},
    {"max-structure-choices", "", 6, 400, choices},
    {"max-schema-depth", "", 6, 400, nested_schema},
    {"max-schemas", "", 12, 400, wide_schema},
};

class LimitFlagsTest : public testing::ServerTest {};

TEST_F(LimitFlagsTest, HoldExactlyAtTheirBound) {
  for (const LimitCase& c : kCases) {
    SCOPED_TRACE(concat("--", c.flag, " ", c.what));
    auto options = options_of(c.flag, concat(c.bound));
    ASSERT_TRUE(options.ok()) << options.error().message;
    start("x", std::move(options).value());
    for (const int64_t used : {c.bound - 1, c.bound}) {
      const auto [status, body] = ask(c.request(used));
      EXPECT_EQ(status, 200) << used << ": " << body;
    }
    const auto [status, body] = ask(c.request(c.bound + 1));
    EXPECT_EQ(status, c.status) << body;
    EXPECT_NE(body.find(concat(c.bound)), std::string::npos) << body;
    EXPECT_EQ(ask(get("/health")).first, 200);
    TearDown();
  }
}

// ------------------------------------------------------------------------------ templates

Result<TemplateLimits> template_limits_of(const std::string& flag, const std::string& value) {
  const std::vector<std::string> words = {"folder", concat("--", flag), value};
  const Arguments arguments = TRY(parse_arguments(
      kServeVerb, words, [](const std::string&) -> std::optional<std::string> { return {}; }));
  return TRY(read_client_setup(arguments)).template_limits;
}

class TemplateFlagsTest : public LimitFlagsTest {
 protected:
  ServedModel model() const override {
    ServedModel made = testing::served_model();
    made.chat_template =
        ChatTemplate::compile(testing::kTemplate, "t", {.limits = limits_}).value();
    return made;
  }
  TemplateLimits limits_;
};

TEST_F(TemplateFlagsTest, BytesHoldExactlyAtTheirBound) {
  constexpr int64_t kBound = 1100;
  const auto with_bytes = [](int64_t bytes) {
    const std::string_view around =
        "<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n<think>\n";
    return post("/apply-template",
                concat(R"({"messages":[{"role":"user","content":")",
                       letters(bytes - static_cast<int64_t>(around.size())), "\"}]}"));
  };
  limits_ = template_limits_of("max-template-bytes", concat(kBound)).value();
  start("x");
  EXPECT_EQ(ask(with_bytes(kBound - 1)).first, 200);
  EXPECT_EQ(ask(with_bytes(kBound)).first, 200);
  const auto [status, body] = ask(with_bytes(kBound + 1));
  EXPECT_EQ(status, 400);
  EXPECT_NE(body.find("more than 1100 bytes"), std::string::npos) << body;
}

TEST(TemplateFlags, StepsAndDepthArriveWithinTheirRange) {
  EXPECT_EQ(template_limits_of("max-template-steps", "1234").value().steps_max, 1234);
  EXPECT_EQ(template_limits_of("max-template-depth", "12").value().depth_max, 12);
  EXPECT_FALSE(template_limits_of("max-template-steps", "999").ok());
  EXPECT_FALSE(template_limits_of("max-template-depth", "9").ok());
  EXPECT_FALSE(template_limits_of("max-template-depth", "201").ok());
  const TemplateLimits standard = template_limits_of("max-tools", "128").value();
  EXPECT_EQ(standard.steps_max, TemplateLimits{}.steps_max);
  EXPECT_EQ(standard.output_bytes_max, TemplateLimits{}.output_bytes_max);
  EXPECT_EQ(standard.depth_max, TemplateLimits{}.depth_max);
}

// --------------------------------------------------------------------------- connections

constexpr const char* kConnectionFlags[] = {"max-connections", "max-connections-per-address"};

TEST_F(LimitFlagsTest, ConnectionsAreCountedExactly) {
  constexpr size_t kBound = 3;
  for (const char* flag : kConnectionFlags) {
    SCOPED_TRACE(flag);
    start("x", options_of(flag, concat(kBound)).value());
    const bool by_address = flag == kConnectionFlags[1];  // else it has a quarter of all
    std::vector<std::unique_ptr<RawClient>> open;
    while (open.size() < kBound) {
      const std::string from = concat("127.0.0.", by_address ? 1 : 10 + open.size());
      open.push_back(std::make_unique<RawClient>(server_->port(), from.c_str()));
      EXPECT_EQ(ask(*open.back(), get("/health")).first, 200) << open.size();
    }
    RawClient one_more(server_->port());
    const std::string refused = one_more.read_all();
    EXPECT_TRUE(refused.starts_with("HTTP/1.1 503 ")) << refused;
    EXPECT_NE(refused.find(concat("at most ", kBound, " (--", flag, ")")), std::string::npos)
        << refused;
    TearDown();
  }
}

// --------------------------------------------------------------------------------- times

/// A transport alone, with one flag given.
class Transport {
 public:
  Transport(const std::string& flag, const std::string& value, HttpHandler handler)
      : server_(
            HttpServer::listen(options_of(flag, value).value().http, std::move(handler)).value()),
        thread_([this] { server_->run(); }) {}
  ~Transport() {
    server_->post([this] { server_->stop(); });
    thread_.join();
  }
  uint16_t port() const { return server_->port(); }
  /// Runs `work` on the server's thread and waits for it.
  void on_server(const std::function<void()>& task) { testing::run_on(*server_, task); }

 private:
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
};

void answer_ok(HttpRequest, std::shared_ptr<HttpExchange> exchange) {
  exchange->respond({.body = "ok"});
}

constexpr milliseconds kSoon{300};        // each flag's least is a second
constexpr milliseconds kLateEnough{900};  // after the first thing that is sent
constexpr milliseconds kTooLate{5000};
constexpr int kTries = 10;

struct TimeCase {
  const char* flag;
  const char* before;    // sent at once
  const char* answered;  // the end of its answer, where it has one
  const char* dripping;  // then this, a byte at a time
  const char* after;     // this ends the request
  const char* refused;   // the last words to who is too slow begin so
};

constexpr TimeCase kTimeCases[] = {
    {.flag = "header-timeout",
     .before = "GET / HTTP/1.1\r\nHost: localhost\r\n",
     .answered = "",
     .dripping = "X-Long: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
     .after = "\r\n\r\n",
     .refused = "HTTP/1.1 408 "},
    {.flag = "body-timeout",
     .before = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 42\r\n\r\n",
     .answered = "",
     .dripping = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
     .after = "bb",
     .refused = "HTTP/1.1 408 "},
    {.flag = "keep-alive-timeout",
     .before = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
     .answered = "ok",
     .dripping = "",
     .after = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
     .refused = ""},
};

/// The answer to one who waits, but not for too long.
std::string told_when_fast(const TimeCase& c, uint16_t port) {
  RawClient fast(port);
  fast.send(c.before);
  if (*c.answered != '\0') fast.read_until(c.answered);
  std::this_thread::sleep_for(kSoon);
  fast.send(concat(c.dripping, c.after));
  return fast.read_until("ok");
}

/// The last words to one who goes on sending until it is cut off, a byte at a time; nothing if it
/// is cut too late.
std::optional<std::string> told_when_slow(const TimeCase& c, uint16_t port) {
  const auto begin = Clock::now();
  RawClient slow(port);
  slow.send(c.before);
  if (*c.answered != '\0') slow.read_until(c.answered);
  std::string refusal;
  for (const char* at = c.dripping; *at != '\0' && refusal.empty(); ++at) {
    slow.send({at, 1});  // to send something is not enough
    refusal = slow.read_until("\r\n\r\n", 100);
  }
  refusal += slow.read_until("", static_cast<int>(kTooLate.count()));
  if (!slow.closed()) return std::nullopt;
  EXPECT_GE(Clock::now() - begin, kLateEnough);
  return refusal;
}

/// A test that stands still is later than it means to be, so each has a few tries.
void check_time(const TimeCase& c) {
  SCOPED_TRACE(c.flag);
  Transport server(c.flag, "1", answer_ok);
  const std::string fine = "HTTP/1.1 200 ";
  std::string answer = told_when_fast(c, server.port());
  for (int tries = 1; tries < kTries && !answer.starts_with(fine); ++tries)
    answer = told_when_fast(c, server.port());
  EXPECT_TRUE(answer.starts_with(fine)) << answer;

  bool refused = false;
  for (int tries = 0; tries < kTries && !refused; ++tries) {
    const auto told = told_when_slow(c, server.port());
    refused = told && told->starts_with(c.refused);
  }
  EXPECT_TRUE(refused);
}

constexpr const char* kSendTimeout = "send-timeout";

/// One answer in pieces, of which the first is more than the system takes from the server.
struct Stream {
  std::shared_ptr<HttpExchange> held;
  std::atomic<bool> gone = false;

  HttpHandler handler() {
    return [this](HttpRequest, std::shared_ptr<HttpExchange> exchange) {
      exchange->start_stream({.content_type = "text/plain"});
      exchange->on_gone([this] { gone = true; });
      held = std::move(exchange);
    };
  }
  void begin(RawClient& reader, Transport& server) {
    reader.send("GET / HTTP/1.0\r\n\r\n");  // without the frames of chunks
    reader.read_until("\r\n\r\n");
    server.on_server([] {});  // then it knows that the head is sent
    server.on_server([&] { held->write(std::string(size_t{64} << 20, 'x')); });
  }
};

/// True if one who reads slowly is served for more than two waits. Then it stops, and is cut.
bool slow_reader_stays() {
  Stream stream;
  Transport server(kSendTimeout, "1", stream.handler());
  RawClient reader(server.port());
  reader.receive_at_most(256 * 1024);
  stream.begin(reader, server);
  Clock::time_point begin;
  for (int i = 0; i < 12; ++i) {
    begin = Clock::now();
    if (reader.read_bytes(1 << 20).empty()) return false;
    std::this_thread::sleep_for(milliseconds(200));
  }
  if (stream.gone) return false;
  while (!stream.gone && Clock::now() - begin < kTooLate)
    std::this_thread::sleep_for(milliseconds(5));
  EXPECT_GE(Clock::now() - begin, milliseconds(500));
  return stream.gone;
}

void check_send_time() {
  bool stays = false;
  for (int tries = 0; tries < kTries && !stays; ++tries) stays = slow_reader_stays();
  EXPECT_TRUE(stays);
}

TEST(TimeFlags, WhoIsSlowerIsCutAndWhoIsFasterIsNot) {
  std::vector<std::future<void>> all;  // they wait, mostly: side by side
  for (const TimeCase& c : kTimeCases)
    all.push_back(std::async(std::launch::async, [&c] { check_time(c); }));
  all.push_back(std::async(std::launch::async, check_send_time));
  for (auto& each : all) each.get();
}

// ------------------------------------------------------------- what waits for slow readers

constexpr const char* kSendBytes = "max-send-bytes";

TEST(SendBytesFlag, HoldsExactlyAtItsBound) {
  constexpr size_t kBound = 65536;
  for (const size_t waiting : {kBound - 1, kBound, kBound + 1}) {
    Stream stream;
    Transport server(kSendBytes, concat(kBound), stream.handler());
    RawClient reader(server.port());
    stream.begin(reader, server);
    EXPECT_FALSE(stream.gone);  // that is being sent
    server.on_server([&] {      // this waits for it
      stream.held->write(std::string(waiting - 1, 'y'));
      stream.held->write("y");
    });
    EXPECT_EQ(stream.gone, waiting > kBound) << waiting;
  }
}

// --------------------------------------------------------------------------- the flags

TEST(LimitFlags, EachIsTestedAndTakesWhatItsRowSays) {
  std::set<std::string_view> tested = {kSendTimeout, kSendBytes, "structure-timeout",
                                       "structure-memory-bytes", "structure-cache-bytes"};
  for (const LimitCase& c : kCases) tested.insert(c.flag);
  for (const TimeCase& c : kTimeCases) tested.insert(c.flag);
  for (const char* flag : kConnectionFlags) tested.insert(flag);
  for (const LimitFlag& limit : kLimitFlags) {
    const std::string flag(limit.option.name);
    EXPECT_TRUE(tested.contains(flag)) << flag;
    EXPECT_TRUE(options_of(flag, concat(limit.least)).ok()) << flag;
    EXPECT_TRUE(options_of(flag, concat(limit.most)).ok()) << flag;
    for (const int64_t wrong : {limit.least - 1, limit.most + 1}) {
      const auto refused = options_of(flag, concat(wrong));
      ASSERT_FALSE(refused.ok()) << flag << " " << wrong;
      const std::string& why = refused.error().message;
      for (const std::string& word : {concat("--", flag), concat(wrong)})
        EXPECT_NE(why.find(word), std::string::npos) << why;
    }
  }
  EXPECT_EQ(options_of("structure-timeout", "7").value().grammar_limits.time_max,
            std::chrono::seconds(7));
  EXPECT_EQ(options_of("structure-memory-bytes", "7M").value().grammar_limits.memory_bytes_max,
            size_t{7} << 20);
  EXPECT_EQ(options_of("structure-cache-bytes", "7").value().grammar_limits.cache_bytes_max, 7U);
}

}  // namespace
}  // namespace nibble
