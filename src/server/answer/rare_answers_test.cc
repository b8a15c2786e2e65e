// Answers that few requests get: errors by their cause, signs of life, counts of drafts.
#include <gtest/gtest.h>

#include "server/answer/answer_writer.h"
#include "server/filters/output_filter.h"
#include "server/request/generation_request.h"

namespace nibble {
namespace {

TEST(RareAnswers, ErrorsHaveAStatusByTheirCause) {
  struct Row {
    ErrorCode code;
    int status;
    const char *type, *word;
  };
  for (const Row& row : {Row{ErrorCode::invalid_argument, 400, "invalid_request_error", "null"},
                         {ErrorCode::not_found, 400, "invalid_request_error", "null"},
                         {ErrorCode::corrupt, 500, "server_error", "null"},
                         {ErrorCode::unsupported, 400, "invalid_request_error", "null"},
                         {ErrorCode::io, 400, "invalid_request_error", "null"},
                         {ErrorCode::no_space, 429, "overloaded", "\"overloaded\""},
                         {ErrorCode::no_memory, 400, "invalid_request_error", "null"},
                         {ErrorCode::cancelled, 503, "service_unavailable", "null"},
                         {ErrorCode::internal, 500, "server_error", "null"}}) {
    const HttpResponse response = ApiError::from({row.code, "why"}).response();
    EXPECT_EQ(response.status, row.status);
    EXPECT_EQ(response.body, concat(R"({"error":{"message":"why","type":")", row.type,
                                    R"(","param":null,"code":)", row.word, "}}"));
    const bool later = row.status == 429 || row.status == 503;
    ASSERT_EQ(response.headers.size(), later ? 1U : 0U);
    if (!later) continue;
    EXPECT_EQ(response.headers[0].name, "Retry-After");
    EXPECT_EQ(response.headers[0].value, "1");
  }
  const HttpResponse who = ApiError{.status = 401}.response();
  ASSERT_EQ(who.headers.size(), 1U);
  EXPECT_EQ(who.headers[0].name, "WWW-Authenticate");
  const HttpResponse wait = ApiError{.status = 503, .retry_after_s = 17}.response();
  ASSERT_EQ(wait.headers.size(), 1U);
  EXPECT_EQ(wait.headers[0].value, "17");
}

TEST(RareAnswers, ValuesAreShownUpToAHundredBytes) {
  const auto text = [](size_t size) { return Json(std::string(size, 'x')); };
  EXPECT_EQ(shown(text(98)), concat("\"", std::string(98, 'x'), "\""));
  EXPECT_EQ(shown(text(99)), concat("\"", std::string(99, 'x'), "..."));
  EXPECT_EQ(shown(Json(std::string(98, 'x') + "\xC3\xA9")),  // a letter is shown whole or not
            concat("\"", std::string(98, 'x'), "..."));
  EXPECT_EQ(shown(Json(Json::Array{})), "array");
  EXPECT_EQ(shown(Json(Json::Object{})), "object");
}

TEST(RareAnswers, FiltersAreToldWhatTheyJudge) {
  const std::pair<FilterPlace, const char*> kNames[] = {{FilterPlace::prompt, "prompt"},
                                                        {FilterPlace::content, "content"},
                                                        {FilterPlace::reasoning, "reasoning"},
                                                        {FilterPlace::arguments, "arguments"}};
  for (const auto& [place, name] : kNames)
    EXPECT_EQ((FilterQuestion{.place = place, .text = "a\"b"}).json(7),
              concat(R"({"id":7,"place":")", name, R"(","text":"a\"b"})"));
}

TEST(RareAnswers, EveryApiHasItsSignOfLife) {
  for (const Api api : {Api::chat, Api::completions, Api::messages, Api::responses}) {
    const GenerationRequest request{.api = api};
    const auto writer = make_answer_writer({.head = {}, .request = request, .names = {}});
    EXPECT_EQ(writer->ping(),
              api == Api::messages ? "event: ping\ndata: {\"type\":\"ping\"}\n\n" : ": ping\n\n");
  }
}

TEST(RareAnswers, TimingsTellOfDraftsWhereThereWereAny) {
  GenerationRequest request{.api = Api::completions, .delivery = Delivery::stream};
  request.include_usage = request.return_progress = true;
  request.prompts = {{1}};
  const AnswerTimes times{.tokens = 5, .prompt_ms = 8.0, .generation_ms = 2000.0};
  const auto told = [&](const TokenCounts& counts) {
    const AnswerHead head{.id = "cmpl-1", .delivery = Delivery::stream, .model = "m"};
    const auto writer = make_answer_writer({.head = head, .request = request, .names = {}});
    writer->count(counts);
    const std::string last = writer->finish(times);
    const size_t end = last.find("\n\n");
    return parse_json(last.substr(6, end - 6), "the event").value().find("timings")->dump();
  };
  const std::string plain =
      R"({"cache_n":4,"prompt_n":6,"prompt_ms":8.0,"predicted_n":5,"predicted_ms":2000.0,)"
      R"("predicted_per_second":2.0)";
  TokenCounts counts;
  counts.prompt = 10;
  counts.completion = 5;
  counts.cached = 4;
  EXPECT_EQ(told(counts), plain + "}");
  counts.drafted = 9;
  counts.accepted = 3;
  EXPECT_EQ(told(counts), plain + R"(,"draft_n":9,"draft_n_accepted":3})");
}

}  // namespace
}  // namespace nibble
