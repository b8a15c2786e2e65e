// Stored responses: bounds, owners, conversations by id.
#include "server/routes/response_store.h"

#include <gtest/gtest.h>

#include "server/testing/test_server.h"

namespace nibble {
namespace {

using testing::get;
using testing::post;

Json named(const std::string& id, size_t bytes = 0) {
  return json_object(
      {{"id", Json(id)}, {"output", Json(Json::Array{Json(std::string(bytes, 'x'))})}});
}

TEST(ResponseStore, TheOldestGo) {
  ResponseStore store({.responses_max = 2, .bytes_max = 10'000});
  for (const char* id : {"a", "b", "c"}) store.put(1, named(id), Json(Json::Array{}));
  EXPECT_FALSE(store.response(1, "a"));
  EXPECT_TRUE(store.response(1, "b"));
  EXPECT_FALSE(store.response(2, "b"));  // of another tenant
  EXPECT_FALSE(store.remove(2, "b"));
  store.put(1, named("d", 9'000), Json(Json::Array{}));
  EXPECT_TRUE(store.response(1, "d"));
  EXPECT_TRUE(store.response(1, "c"));
  store.put(1, named("e", 9'000), Json(Json::Array{}));
  EXPECT_FALSE(store.response(1, "c"));
  EXPECT_FALSE(store.response(1, "d"));
  store.put(1, named("f", 20'000), Json(Json::Array{}));  // too large alone
  EXPECT_FALSE(store.response(1, "f"));
  EXPECT_TRUE(store.response(1, "e"));
  EXPECT_LE(store.bytes(), 10'000U);
  EXPECT_TRUE(store.remove(1, "e"));
  EXPECT_EQ(store.bytes(), 0U);
}

class ResponseStoreTest : public testing::ServerTest {
 protected:
  Json ask_json(const std::string& request, int expected = 200) {
    const auto [status, body] = ask(request);
    EXPECT_EQ(status, expected) << body;
    return parse_json(body, "body").value();
  }
  std::string removal(const std::string& id, const std::string& key) {
    return concat("DELETE /v1/responses/", id,
                  " HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ", key, "\r\n\r\n");
  }
  static constexpr const char* kMine = "Authorization: Bearer mine\r\n";
  static constexpr const char* kTheirs = "Authorization: Bearer theirs\r\n";
};

TEST_F(ResponseStoreTest, AConversationGoesOnById) {
  ServerOptions options;
  options.api_keys = {"mine", "theirs"};
  options.response_store.responses_max = 8;
  start("why</think>\n\nyes", options);
  const Json first = ask_json(post("/v1/responses", R"({"input":"one"})", kMine));
  const std::string id = at(first, "id").as_string();
  EXPECT_EQ(at(first, "store"), Json(true));
  EXPECT_EQ(ask_json(get("/v1/responses/" + id, kMine)), first);
  EXPECT_EQ(ask(get("/v1/responses/" + id, kTheirs)).first, 404);

  // The same conversation, by id and sent whole, has the same prompt.
  const Json second = ask_json(post(
      "/v1/responses", concat(R"({"input":"two","previous_response_id":")", id, R"("})"), kMine));
  EXPECT_EQ(at(second, "previous_response_id").as_string(), id);
  Json::Array all =
      at(ask_json(get(concat("/v1/responses/", id, "/input_items"), kMine)), "data").as_array();
  ASSERT_EQ(all.size(), 1U);
  for (const Json& item : at(first, "output").as_array()) all.push_back(item);
  all.push_back(parse_json(R"({"role":"user","content":"two"})", "item").value());
  const Json sent_whole =
      ask_json(post("/v1/responses", json_object({{"input", Json(all)}}).dump(), kMine));
  EXPECT_EQ(at(at(second, "usage"), "input_tokens"), at(at(sent_whole, "usage"), "input_tokens"));
  const Json items =
      ask_json(get(concat("/v1/responses/", at(second, "id").as_string(), "/input_items"), kMine));
  EXPECT_EQ(at(items, "data").as_array().size(), all.size());

  EXPECT_EQ(
      ask_json(post("/v1/responses",
                    concat(R"({"input":"two","previous_response_id":")", id, R"("})"), kTheirs),
               400)
          .find("error")
          ->find("code")
          ->as_string(),
      "previous_response_not_found");
  EXPECT_EQ(ask(removal(id, "theirs")).first, 404);
  EXPECT_EQ(at(ask_json(removal(id, "mine")), "deleted"), Json(true));
  EXPECT_EQ(ask(get("/v1/responses/" + id, kMine)).first, 404);
  // A later response holds all that went before it.
  ask_json(post(
      "/v1/responses",
      concat(R"({"input":"three","previous_response_id":")", at(second, "id").as_string(), R"("})"),
      kMine));
}

TEST_F(ResponseStoreTest, StreamsAreStoredAndStoreFalseIsNot) {
  ServerOptions options;
  options.response_store.responses_max = 8;
  start("why</think>\n\nyes", options);
  const auto streamed = events(post("/v1/responses", R"({"input":"one","stream":true})"));
  const Json last = parse_json(streamed.back(), "event").value();
  EXPECT_EQ(at(last, "type").as_string(), "response.completed");
  const Json& response = at(last, "response");
  EXPECT_EQ(ask_json(get("/v1/responses/" + at(response, "id").as_string())), response);
  const Json unstored = ask_json(post("/v1/responses", R"({"input":"one","store":false})"));
  EXPECT_EQ(at(unstored, "store"), Json(false));
  EXPECT_EQ(ask(get("/v1/responses/" + at(unstored, "id").as_string())).first, 404);
  EXPECT_EQ(ask(post("/v1/responses", "[]")).first, 400);
  EXPECT_EQ(ask(post("/v1/responses", R"({"input":7})")).first, 400);
}

/// Their order is the newest first.
TEST_F(ResponseStoreTest, ItemsAreListedAndWhatIsNotThereIsSaid) {
  ServerOptions options;
  options.response_store.responses_max = 8;
  start("why</think>\n\nyes", options);
  const Json answer =
      ask_json(post("/v1/responses", R"({"input":[{"id":"a","role":"user","content":"1"},)"
                                     R"({"id":"b","role":"user","content":"2"}]})"));
  const std::string id = at(answer, "id").as_string();
  EXPECT_EQ(ask(get(concat("/v1/responses/", id, "/input_items"))).second,
            R"({"object":"list","first_id":"b","last_id":"a","has_more":false,"data":[)"
            R"({"id":"b","role":"user","content":"2"},{"id":"a","role":"user","content":"1"}]})");
  EXPECT_EQ(ask(removal(id, "any")).second,
            concat(R"({"id":")", id, R"(","object":"response","deleted":true})"));
  const auto [status, text] = ask(get("/v1/responses/none"));
  EXPECT_EQ(status, 404);
  EXPECT_EQ(text, R"({"error":{"message":"there is no stored response \"none\"",)"
                  R"("type":"invalid_request_error","param":null,"code":"not_found"}})");
}

/// A text is one message of the user.
TEST_F(ResponseStoreTest, ATextIsStoredAsAnItem) {
  ServerOptions options;
  options.response_store.responses_max = 8;
  start("why</think>\n\nyes", options);
  const Json answer = ask_json(post("/v1/responses", R"({"input":"hi"})"));
  const Json list =
      ask_json(get(concat("/v1/responses/", at(answer, "id").as_string(), "/input_items")));
  ASSERT_EQ(at(list, "data").as_array().size(), 1U);
  Json item = at(list, "data").as_array().front();
  EXPECT_EQ(at(list, "first_id"), at(item, "id"));
  EXPECT_TRUE(at(item, "id").as_string().starts_with("item_"));
  item.set("id", Json());
  EXPECT_EQ(item.dump(), R"({"type":"message","role":"user","content":)"
                         R"([{"type":"input_text","text":"hi"}],"id":null})");
}

TEST_F(ResponseStoreTest, OffByDefault) {
  start("why</think>\n\nyes");
  const Json answer = ask_json(post("/v1/responses", R"({"input":"one","store":true})"));
  EXPECT_EQ(at(answer, "store"), Json(false));
  EXPECT_EQ(ask(get("/v1/responses/" + at(answer, "id").as_string())).first, 404);
  EXPECT_EQ(ask(post("/v1/responses", R"({"input":"two","previous_response_id":"resp_1"})")).first,
            400);
}

}  // namespace
}  // namespace nibble
