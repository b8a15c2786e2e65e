// The page's files as they are served, and that the API's document says what the server does.
#include "server/web/web_assets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "server/request/known_fields.h"
#include "server/routes/routes.h"
#include "server/testing/test_server.h"

namespace nibble {
namespace {

constexpr size_t kPageBytesMax = 160 * 1024;  // all that a browser loads for the page

std::string header_of(const HttpResponse& response, std::string_view name) {
  for (const HttpHeader& header : response.headers)
    if (header.name == name) return header.value;
  return "";
}

TEST(WebAssets, PathsAreFiles) {
  for (const auto& [path, type] : {std::pair{"/", "text/html; charset=utf-8"},
                                   {"/docs", "text/html; charset=utf-8"},
                                   {"/openapi.json", "application/json"},
                                   {"/assets/app.js", "text/javascript; charset=utf-8"},
                                   {"/assets/style.css", "text/css; charset=utf-8"},
                                   {"/assets/icon.svg", "image/svg+xml"}}) {
    const EmbeddedFile* file = web_file(path);
    ASSERT_NE(file, nullptr) << path;
    const HttpResponse response = web_response(*file, "");
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.content_type, type) << path;
    EXPECT_EQ(response.body, file->body);
    EXPECT_EQ(header_of(response, "X-Content-Type-Options"), "nosniff");
    EXPECT_EQ(header_of(response, "ETag"), file->etag);
    const std::string policy = header_of(response, "Content-Security-Policy");
    EXPECT_NE(policy.find("default-src 'none'"), std::string::npos);
    EXPECT_NE(policy.find("frame-ancestors 'none'"), std::string::npos);
    EXPECT_EQ(policy.find("unsafe"), std::string::npos);
  }
  for (const char* path : {"", "/assets/", "/assets/../server.cc", "/assets/nothing.js",
                           "/index.html", "/assets/app.js/", "//"})
    EXPECT_EQ(web_file(path), nullptr) << path;
}

TEST(WebAssets, AKnownFileIsNotSentAgain) {
  const EmbeddedFile& file = *web_file("/");
  EXPECT_EQ(file.etag.front(), '"');
  const HttpResponse again = web_response(file, concat("\"other\", ", file.etag));
  EXPECT_EQ(again.status, 304);
  EXPECT_TRUE(again.body.empty());
  EXPECT_EQ(web_response(file, "\"other\"").status, 200);
}

/// Every reference of the files is to a file that is there, and none is to elsewhere.
TEST(WebAssets, NothingIsAskedOfOtherServers) {
  size_t bytes = 0;
  for (const EmbeddedFile& file : embedded_files()) {
    if (file.name != "openapi.json") bytes += file.body.size();
    std::string_view rest = file.body;
    for (size_t at = rest.find("/assets/"); at != rest.npos; at = rest.find("/assets/", at + 1)) {
      if (file.name == "openapi.json") break;
      const size_t end = rest.find_first_of("\"'`)", at);
      EXPECT_NE(web_file(rest.substr(at, end - at)), nullptr) << rest.substr(at, end - at);
    }
    for (const std::string_view scheme : {"http://", "https://", "//cdn", "url("})
      for (size_t at = rest.find(scheme); at != rest.npos; at = rest.find(scheme, at + 1)) {
        const bool name_of_format = rest.substr(at).starts_with("http://www.w3.org/");
        const bool read_in_text = file.name == "inline.js";
        EXPECT_TRUE(name_of_format || read_in_text) << file.name << ": " << rest.substr(at, 60);
      }
    for (const std::string_view word : {"innerHTML", "outerHTML", "insertAdjacentHTML", "eval(",
                                        "document.write", " style=\"", " onclick=\""})
      EXPECT_EQ(rest.find(word), rest.npos) << file.name << ": " << word;
  }
  EXPECT_LT(bytes, kPageBytesMax);
}

Json document() {
  return parse_json(web_file("/openapi.json")->body, "openapi.json", {.bytes_max = 1 << 20})
      .value();
}

/// "/v1/models/{id}" is the row "/v1/models/"; what comes after the braces is its tail.
std::string row_of(std::string_view path) {
  const size_t open = path.find('{');
  if (open == path.npos) return std::string(path);
  return concat(path.substr(0, open), "*", path.substr(path.find('}') + 1));
}
std::string row_of(const Route& route) {
  const bool folder = route.path.size() > 1 && route.path.ends_with('/');
  return concat(route.path, folder ? "*" : "", route.tail);
}

TEST(Routes, TheNearestFitCountsAlone) {
  EXPECT_EQ(find_route("OPTIONS", "/v1/responses/input_tokens").allowed, "POST");
  EXPECT_EQ(find_route("OPTIONS", "/v1/responses/resp_1").allowed, "GET, DELETE");
  EXPECT_EQ(find_route("OPTIONS", "/v1/responses/resp_1/cancel").allowed, "POST");
  EXPECT_EQ(find_route("OPTIONS", "/v1/responses/resp_1/input_items").allowed, "GET");
  EXPECT_EQ(find_route("POST", "/v1/requests/id").allowed, "");
  EXPECT_EQ(find_route("POST", "/v1/requests//cancel").allowed, "");
  EXPECT_EQ(find_route("GET", "/anything").allowed, "");
}

TEST(OpenApi, EveryRouteIsDocumentedAndTheReverse) {
  std::set<std::string> documented;
  const Json json = document();
  for (const auto& [path, verbs] : json.find("paths")->as_object())
    for (const auto& [verb, operation] : verbs.as_object()) {
      std::string method = verb;
      for (char& c : method) c = static_cast<char>(c - 'a' + 'A');
      documented.insert(concat(method, " ", row_of(path)));
      RouteChoice choice = find_route(method, path);
      if (choice.route == nullptr) choice = find_route(method, path, Door::clients_and_admin);
      ASSERT_NE(choice.route, nullptr) << method << " " << path;
      const bool open = operation.find("security") != nullptr;
      EXPECT_EQ(open, choice.route->access == Access::open) << path;
      EXPECT_EQ(operation.find("requestBody") != nullptr,
                choice.route->method == "POST" && choice.route->body == BodyRule::json)
          << path;
    }
  for (const Route& route : server_routes())
    EXPECT_TRUE(documented.contains(concat(route.method, " ", row_of(route))))
        << route.method << " " << route.path << " is not in src/server/web/openapi.json";
  EXPECT_EQ(documented.size(), server_routes().size());
}

TEST(OpenApi, EveryFieldIsDocumentedAndTheReverse) {
  const Json json = document();
  const Json& schemas = *json.find("components")->find("schemas");
  for (const auto& [name, api] : {std::pair{"ChatRequest", Api::chat},
                                  {"CompletionRequest", Api::completions},
                                  {"MessagesRequest", Api::messages},
                                  {"ResponsesRequest", Api::responses}}) {
    std::multiset<std::string> documented;
    for (const auto& [field, schema] : schemas.find(name)->find("properties")->as_object())
      documented.insert(field);
    for (const char* list : {"x-refused", "x-ignored"})
      for (const Json& field : schemas.find(name)->find(list)->as_array())
        documented.insert(field.as_string());
    const auto known = known_fields(api);
    for (const std::string_view field : known)
      EXPECT_EQ(documented.count(std::string(field)), 1U)
          << field << " of " << name << " is not once in src/server/web/openapi.json";
    for (const std::string& field : documented)
      EXPECT_TRUE(std::ranges::binary_search(known, field))
          << field << " of " << name << " is in openapi.json and not known to the server";
  }
}

class WebPageTest : public testing::ServerTest {
 protected:
  std::string head(const std::string& request) {
    testing::RawClient client(server_->port());
    client.send(request);
    return client.read_until("\r\n\r\n");
  }
};

TEST_F(WebPageTest, ThePageNeedsNoKeyAndItsDataDoes) {
  ServerOptions options;
  options.api_keys = {"sesame"};
  start("yes", std::move(options));
  for (const char* path : {"/", "/docs", "/openapi.json", "/assets/app.js"})
    EXPECT_TRUE(head(testing::get(path)).starts_with("HTTP/1.1 200")) << path;
  EXPECT_TRUE(head(testing::get("/assets/none")).starts_with("HTTP/1.1 404"));
  for (const char* path : {"/stats", "/v1/models", "/load", "/none"})
    EXPECT_TRUE(head(testing::get(path)).starts_with("HTTP/1.1 401")) << path;
  EXPECT_EQ(ask(testing::get("/stats", "Authorization: Bearer sesame\r\n")).first, 200);
}

TEST_F(WebPageTest, AKnownFileIsNotSentAgain) {
  start("yes");
  const std::string etag(web_file("/")->etag);
  const std::string answer =
      head(testing::get("/", concat("If-None-Match: ", etag, "\r\nConnection: close\r\n")));
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 304 Not Modified")) << answer;
  EXPECT_TRUE(
      head(concat("HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n")).starts_with("HTTP/1.1 200"));
}

TEST_F(WebPageTest, CanBeSwitchedOff) {
  ServerOptions options;
  options.web = WebPage::off;
  start("yes", std::move(options));
  for (const char* path : {"/", "/docs", "/openapi.json", "/assets/app.js"})
    EXPECT_TRUE(head(testing::get(path)).starts_with("HTTP/1.1 404")) << path;
  EXPECT_EQ(ask(testing::get("/stats")).first, 200);
}

TEST_F(WebPageTest, StatsCountWhatWasSaid) {
  ServerOptions options;
  options.memory_map = {{"weights", 12}, {"host", 34, MemoryPart::Place::host}};
  start("why</think>\n\nyes", std::move(options));
  const Json answer = chat("");
  const int64_t said = at(at(answer, "usage"), "completion_tokens").as_int();
  const Json stats = parse_json(ask(testing::get("/stats")).second, "stats").value();
  // The end's own token is counted in the answer's usage and not among those that were said.
  const int64_t generated = at(at(stats, "tokens"), "generated").as_int();
  EXPECT_GE(generated, said - 1);
  EXPECT_LE(generated, said);
  EXPECT_EQ(at(at(stats, "tokens"), "prompt"), at(at(answer, "usage"), "prompt_tokens"));
  EXPECT_EQ(at(stats, "state"), Json("awake"));
  EXPECT_EQ(at(stats, "requests").as_array().size(), 0U);
  EXPECT_EQ(at(at(stats, "memory").as_array().at(1), "place"), Json("host"));
  EXPECT_EQ(at(stats, "pools").as_array().size(), 4U);
  EXPECT_EQ(at(stats, "device_allocations"), Json(int64_t{0}));  // of a CPU
}

}  // namespace
}  // namespace nibble
