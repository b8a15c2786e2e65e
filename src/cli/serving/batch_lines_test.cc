// Lines of a batch in and out, and what a later run makes of an earlier one's file.
#include "cli/serving/batch_lines.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/file.h"
#include "base/json.h"
#include "testing/test_files.h"

namespace nibble {
namespace {

TEST(BatchLines, TakesWhatOpenAiTakes) {
  const auto parsed = parse_batch_line(
      R"({"custom_id":"a","method":"POST","url":"/v1/completions","body":{"prompt":"x"}})",
      "line 1");
  const auto& request = std::get<BatchRequest>(parsed);
  EXPECT_EQ(request.custom_id, "a");
  EXPECT_EQ(request.url, "/v1/completions");
  EXPECT_EQ(request.body, R"({"prompt":"x","priority":1000})");
}

TEST(BatchLines, SaysWhatIsWrong) {
  const auto line = [](const char* id, const char* url, const char* body) {
    return concat(R"({"custom_id":)", id, R"(,"url":)", url, R"(,"body":)", body, "}");
  };
  const std::string url = R"("/v1/completions")";
  const struct {
    std::string line;
    const char* id;
    const char* message;
  } cases[] = {
      {"{", "", "line 9"},
      {"[1]", "", "line 9: expected a JSON object, found array"},
      {R"({"custom_id":"a","custom_id":"b"})", "", "line 9"},
      {line("7", url.c_str(), "{}"), "", "line 9: custom_id: expected a string of 1 to 512 bytes"},
      {line("\"\"", url.c_str(), "{}"), "", "custom_id: expected a string"},
      {line(Json(std::string(513, 'x')).dump().c_str(), url.c_str(), "{}"), "", "1 to 512 bytes"},
      {R"({"custom_id":"a","method":"GET","url":"/v1/completions","body":{}})", "a",
       "line 9: method: expected \"POST\""},
      {line("\"a\"", "\"/sleep\"", "{}"), "a", "line 9: url: expected one of /v1/chat/"},
      {line("\"a\"", url.c_str(), "[]"), "a", "line 9: body: expected an object"},
      {line("\"a\"", url.c_str(), R"({"stream":true})"), "a", "do not stream"},
  };
  for (const auto& row : cases) {
    const auto parsed = parse_batch_line(row.line, "line 9");
    ASSERT_TRUE(std::holds_alternative<BatchRefusal>(parsed)) << row.line;
    const auto& refusal = std::get<BatchRefusal>(parsed);
    EXPECT_EQ(refusal.custom_id, row.id) << row.line;
    EXPECT_NE(refusal.message.find(row.message), std::string::npos) << refusal.message;
    const std::string said = refused_line(refusal);
    const Json json = parse_json(said, "the answer").value();
    EXPECT_EQ(said.find('\n'), said.size() - 1);
    EXPECT_TRUE(json.find("response")->is_null());
    EXPECT_EQ(*json.find("error")->find("message"), Json(refusal.message));
  }
}

TEST(BatchLines, AnAnswerIsALineOfJson) {
  const std::string line = answered_line(
      "a\n\"", {.status = 400, .body = "{\"x\":1}", .headers = {{"x-request-id", "req_1"}}});
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const Json json = parse_json(line, "the answer").value();
  EXPECT_EQ(*json.find("custom_id"), Json("a\n\""));
  EXPECT_EQ(json.find("response")->dump(),
            R"({"status_code":400,"request_id":"req_1","body":{"x":1}})");
  EXPECT_TRUE(json.find("error")->is_null());
}

class BatchOutputTest : public ::testing::Test {
 protected:
  void write(const std::string& text) const { std::ofstream(path_) << text; }
  std::string read() const { return read_text_file(path_, 1 << 20).value(); }

  const TemporaryFolder folder_;
  const std::string path_ = folder_ / "batch.jsonl";
};

TEST_F(BatchOutputTest, GoesOnAfterAnEarlierRun) {
  const BatchRefusal nameless{.custom_id = "", .message = "line 3: not JSON"};
  const std::string whole = answered_line("a", {.status = 200, .body = "{}"}) +
                            answered_line("b", {.status = 400, .body = "{}"}) +
                            refused_line(nameless);
  write(whole + answered_line("c", {.status = 200, .body = "{}"}).substr(0, 30));
  const BatchOutput output = BatchOutput::open(path_).value();
  EXPECT_EQ(read(), whole);  // what was cut off is gone
  EXPECT_TRUE(output.knows(BatchRequest{.custom_id = "a"}));
  EXPECT_TRUE(output.knows(BatchRequest{.custom_id = "b"}));
  EXPECT_FALSE(output.knows(BatchRequest{.custom_id = "c"}));
  EXPECT_TRUE(output.knows(nameless));
  EXPECT_FALSE(output.knows(BatchRefusal{.custom_id = "", .message = "line 4: not JSON"}));
  EXPECT_EQ(output.earlier(), 3);
  EXPECT_EQ(output.earlier_failures(), 2);
  ASSERT_TRUE(output.write("x\n").ok());
  EXPECT_EQ(read(), whole + "x\n");
}

TEST_F(BatchOutputTest, RefusesTwoRunsAndOtherFiles) {
  {
    const BatchOutput first = BatchOutput::open(path_).value();
    EXPECT_NE(BatchOutput::open(path_).error().message.find("another run"), std::string::npos);
  }
  for (const char* text : {"hello\n", "{\"custom_id\":\"a\"}\n", "[]\n"}) {
    write(text);
    const auto opened = BatchOutput::open(path_);
    ASSERT_FALSE(opened.ok()) << text;
    EXPECT_NE(opened.error().message.find("line 1: expected an answer"), std::string::npos);
    EXPECT_EQ(read(), text);
  }
  EXPECT_EQ(BatchOutput::open("/no/such/folder/x").error().code, ErrorCode::io);
}

}  // namespace
}  // namespace nibble
