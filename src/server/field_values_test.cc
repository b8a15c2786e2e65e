// Values at the edge of their range are taken, those beyond are not, and all reach the request.
#include <gtest/gtest.h>

#include "server/request/generation_request.h"
#include "server/testing/test_model.h"

namespace nibble {
namespace {

std::string body_with(Api api, const std::string& fields) {
  const char* base = api == Api::completions ? R"({"prompt":"a")"
                                             : R"({"messages":[{"role":"user","content":"a"}])";
  return concat(base, fields.empty() ? "" : ",", fields, "}");
}

GenerationRequest taken(Api api, const std::string& fields,
                        const ServedModel& served = testing::served_model()) {
  auto read = parse_generation_request(api, body_with(api, fields), served);
  if (auto* error = std::get_if<ApiError>(&read)) {
    ADD_FAILURE() << fields.substr(0, 100) << ": " << error->message;
    return {};
  }
  return std::move(std::get<GenerationRequest>(read));
}

TEST(FieldValues, OfSamplingAreTheModelsUntilARequestSaysElse) {
  ServedModel served = testing::served_model();
  served.sampling = {.temperature = 0.6, .top_k = 20, .top_p = 0.95, .min_p = 0.1};
  served.sampling.presence_penalty = 0.25;
  served.sampling.frequency_penalty = 0.5;
  served.sampling.repetition_penalty = 1.25;
  const auto expect = [&](const std::string& fields, const std::vector<double>& values) {
    const SamplingParams s = taken(Api::completions, fields, served).sampling;
    EXPECT_EQ((std::vector<double>{s.temperature, static_cast<double>(s.top_k), s.top_p, s.min_p,
                                   s.presence_penalty, s.frequency_penalty, s.repetition_penalty}),
              values)
        << fields;
  };
  expect("", {0.6, 20, 0.95, 0.1, 0.25, 0.5, 1.25});
  expect(R"("temperature":0,"top_k":0,"top_p":0,"min_p":0,"presence_penalty":-2,)"
         R"("frequency_penalty":-2,"repetition_penalty":0.01)",
         {0, 0, 0, 0, -2, -2, 0.01});
  expect(R"("temperature":100,"top_k":2147483647,"top_p":1,"min_p":1,"presence_penalty":2,)"
         R"("frequency_penalty":2,"repetition_penalty":10)",
         {100, 2147483647, 1, 1, 2, 2, 10});
}

std::string list_of(size_t count, const std::string& item) {
  std::string list = "[";
  for (size_t i = 0; i < count; ++i) list += concat(i == 0 ? "" : ",", item);
  return list + "]";
}

constexpr const char* kTool = R"({"type":"function","function":{"name":"f"}})";

/// One more than these is refused, as other tests have it.
TEST(FieldValues, AtTheEdgeOfTheirRangeAreTaken) {
  const RequestLimits limits;
  ServedModel roomy = testing::served_model();
  roomy.context_max = 1 << 20;
  for (const std::string& fields :
       {concat(R"("stop":)", list_of(limits.stop_strings_max, "\"x\"")),
        concat(R"("stop":")", std::string(limits.stop_bytes_max, 'x'), "\""),
        concat(R"("cache_salt":")", std::string(128, 's'), "\""),
        concat(R"("tools":)", list_of(limits.tools_max, kTool))})
    EXPECT_EQ(taken(Api::chat, fields, roomy).prompts.size(), 1U) << fields.substr(0, 80);
  for (const char* fields :
       {R"("priority":1000)",
        R"("priority":-1000)",
        R"("n":128)",
        R"("logprobs":true,"top_logprobs":20)",
        R"("logprobs":true,"top_logprobs":0)",
        R"("top_logprobs":0)",
        R"("prompt_logprobs":0)",
        R"("prompt_logprobs":20)",
        R"("logit_bias":{"0":-100,"299":100})",
        R"("stop_token_ids":[0,299])",
        R"("allowed_token_ids":[0,299])",
        R"("truncate_prompt_tokens":1)",
        R"("max_time_ms":1)",
        R"("max_time_ms":86400000)",
        R"("answer_reserve":0)",
        R"("max_tokens":5,"min_tokens":5)",
        R"("thinking_budget":0)",
        R"("repetition_detection":{"max_pattern_size":1024,"min_count":16})",
        R"("repetition_detection":{"max_pattern_size":1,"min_count":2})",
        R"("repetition_detection":{"max_pattern_size":4,"min_pattern_size":4,"min_count":2})"})
    EXPECT_EQ(taken(Api::chat, fields).prompts.size(), 1U) << fields;
  const auto many = parse_generation_request(
      Api::completions, concat(R"({"max_tokens":1,"prompt":)", list_of(128, "\"a\""), "}"),
      testing::served_model());
  ASSERT_TRUE(std::holds_alternative<GenerationRequest>(many));
  EXPECT_EQ(std::get<GenerationRequest>(many).prompts.size(), 128U);
}

TEST(FieldValues, OneMoreThanTheMostIsRefused) {
  const RequestLimits limits;
  const auto refused = [](const std::string& body) {
    const auto read = parse_generation_request(Api::chat, body, testing::served_model());
    const auto* error = std::get_if<ApiError>(&read);
    return error != nullptr ? error->message : std::string("taken");
  };
  const std::string tools = concat(R"("tools":)", list_of(limits.tools_max + 1, kTool));
  EXPECT_NE(refused(body_with(Api::chat, tools)).find("a list of at most 128"), std::string::npos);
  const std::string message = R"({"role":"user","content":""})";
  EXPECT_NE(refused(concat(R"({"messages":)", list_of(limits.messages_max + 1, message), "}"))
                .find("a list of 1 to 2048, found 2049"),
            std::string::npos);
  std::string biases;
  for (int id = 0; id < 1025; ++id) biases += concat(id == 0 ? "" : ",", "\"", id, "\":1");
  EXPECT_NE(refused(body_with(Api::chat, concat(R"("logit_bias":{)", biases, "}")))
                .find("at most 1024 entries"),
            std::string::npos);
}

TEST(FieldValues, ReachTheRequest) {
  const GenerationRequest streamed = taken(
      Api::chat, R"("stream":true,"stream_options":{"include_usage":true},"return_progress":true,)"
                 R"("return_token_ids":true,"include_reasoning":false,"n":3,"min_tokens":2,)"
                 R"("skip_special_tokens":false,"cache_salt":"s","answer_reserve":7,)"
                 R"("max_time_ms":250,"repetition_detection":{"max_pattern_size":6,)"
                 R"("min_pattern_size":2,"min_count":3},"return_tokens_as_token_ids":true)");
  EXPECT_EQ(streamed.delivery, Delivery::stream);
  EXPECT_TRUE(streamed.include_usage);
  EXPECT_FALSE(streamed.usage_in_chunks);
  EXPECT_TRUE(streamed.return_progress);
  EXPECT_TRUE(streamed.return_token_ids);
  EXPECT_FALSE(streamed.include_reasoning);
  EXPECT_EQ(streamed.choices, 3);
  EXPECT_EQ(streamed.min_tokens, 2);
  EXPECT_EQ(streamed.skip_special, SkipSpecial::no);
  EXPECT_EQ(streamed.cache_salt, "s");
  EXPECT_EQ(streamed.answer_reserve, 7);
  EXPECT_EQ(streamed.timeout_ms, 250.0);
  ASSERT_TRUE(streamed.repetition);
  EXPECT_EQ(streamed.repetition->pattern_min, 2);
  EXPECT_EQ(streamed.repetition->pattern_max, 6);
  EXPECT_EQ(streamed.repetition->count_min, 3);
  EXPECT_EQ(streamed.token_name, TokenName::id);
}

TEST(FieldValues, OfARequestThatSaysNothing) {
  const GenerationRequest whole = taken(Api::chat, R"("return_progress":true)");
  EXPECT_EQ(whole.delivery, Delivery::whole);
  EXPECT_FALSE(whole.return_progress);  // is of streams
  EXPECT_FALSE(whole.return_token_ids);
  EXPECT_TRUE(whole.include_reasoning);
  EXPECT_EQ(whole.skip_special, SkipSpecial::yes);
  EXPECT_EQ(whole.token_name, TokenName::text);
  EXPECT_EQ(whole.sampling.top_logprobs, -1);
  EXPECT_EQ(taken(Api::chat, R"("logprobs":true)").sampling.top_logprobs, 0);
  EXPECT_EQ(taken(Api::chat, R"("logprobs":true,"top_logprobs":4)").sampling.top_logprobs, 4);
  EXPECT_EQ(taken(Api::completions, R"("logprobs":4)").sampling.top_logprobs, 4);
}

}  // namespace
}  // namespace nibble
