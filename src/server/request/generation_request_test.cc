// Requests: a table of refusals, and what the accepted ones become.
#include "server/request/generation_request.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <set>

#include "server/request/cache_salt.h"
#include "server/testing/test_model.h"

namespace nibble {
namespace {

constexpr const char* kMessages = R"("messages":[{"role":"user","content":"hi"}])";

const ServedModel& model() {
  static const ServedModel served = testing::served_model();
  return served;
}

GenerationRequest accept(Api api, const std::string& fields) {
  const std::string base = api == Api::chat ? kMessages : R"("prompt":"hi")";
  auto parsed = parse_generation_request(api, concat("{", base, fields, "}"), model());
  if (auto* error = std::get_if<ApiError>(&parsed)) {
    ADD_FAILURE() << fields << ": " << error->message;
    return {};
  }
  return std::get<GenerationRequest>(std::move(parsed));
}

struct Refusal {
  std::string body;
  const char* param;
  const char* says;
  int status = 400;
};

void expect_refusals(Api api, const std::vector<Refusal>& table) {
  for (const Refusal& row : table) {
    const auto parsed = parse_generation_request(api, row.body, model());
    const auto* error = std::get_if<ApiError>(&parsed);
    ASSERT_NE(error, nullptr) << row.body;
    EXPECT_EQ(error->status, row.status) << row.body;
    EXPECT_EQ(error->param, row.param) << row.body;
    EXPECT_NE(error->message.find(row.says), std::string::npos)
        << row.body << ": " << error->message;
    EXPECT_EQ(error->message.find('\n'), std::string::npos) << error->message;
    EXPECT_LT(error->message.size(), 500U) << error->message;
  }
}

std::string with(const std::string& fields) { return concat("{", kMessages, ",", fields, "}"); }
std::string messages(const std::string& list) { return concat(R"({"messages":)", list, "}"); }

TEST(GenerationRequest, RefusesBadBodies) {
  std::string deep(100, '[');
  expect_refusals(
      Api::chat,
      {{"", "", "request body"},
       {"{", "", "request body"},
       {"[]", "", "expected a JSON object, found array"},
       {"{\"a\":1,\"a\":2}", "", "duplicate key"},
       {deep, "", "nesting"},
       {R"({"messages":"\ud800"})", "", "request body"},
       {"{\"messages\":\"\xff\"}", "", "request body"},
       {R"({"seed":1e999})", "", "request body"},
       {"{}", "messages", "found nothing"},
       {messages("[]"), "messages", "found 0"},
       {messages("5"), "messages", "found 5"},
       {messages("[5]"), "messages", "messages[0]"},
       {messages(R"([{"content":"x"}])"), "messages", "with a role"},
       {messages(R"([{"role":"user","content":5}])"), "messages", "messages[0].content"},
       {messages(
            R"([{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:"}}]}])"),
        "messages", "\"image_url\" are not supported"},
       {messages(R"([{"role":"user","content":[{"type":"text"}]}])"), "messages", "parts"},
       {messages(R"([{"role":"user","content":["x"]}])"), "messages", "parts"},
       {messages(R"([{"role":"wizard","content":"x"}])"), "messages", "Unexpected message role."},
       {with(R"("model":5)"), "model", "expected a string"},
       {with(R"("model":"gpt-9")"), "model", "gpt-9", 404}});
}

TEST(GenerationRequest, RefusesValuesOutsideTheirRange) {
  expect_refusals(
      Api::chat,
      {{with(R"("temperature":-0.1)"), "temperature", "from 0 to 100, found -0.1"},
       {with(R"("temperature":"1")"), "temperature", "found \"1\""},
       {with(R"("top_p":1.01)"), "top_p", "0 to 1"},
       {with(R"("min_p":-1)"), "min_p", "0 to 1"},
       {with(R"("top_k":-2)"), "top_k", "-1"},
       {with(R"("top_k":1.5)"), "top_k", "whole"},
       {with(R"("presence_penalty":2.1)"), "presence_penalty", "-2 to 2"},
       {with(R"("frequency_penalty":-2.1)"), "frequency_penalty", "-2 to 2"},
       {with(R"("repetition_penalty":0)"), "repetition_penalty", "0.01"},
       {with(R"("seed":1.5)"), "seed", "whole"},
       {with(R"("n":0)"), "n", "1 to 128"},
       {with(R"("n":129)"), "n", "1 to 128"},
       {with(R"("n":99999999999999999999)"), "n", "1 to 128"},
       {with(R"("max_tokens":0)"), "max_tokens", "from 1"},
       {with(R"("max_tokens":-5)"), "max_tokens", "from -1"},
       {with(R"("n":1.5)"), "n", "1 to 128"},
       {with(R"("truncate_prompt_tokens":0)"), "truncate_prompt_tokens", "or -1"},
       {with(R"("truncation_side":"middle")"), "truncation_side", "left or right"},
       {with(R"("truncate_prompt_tokens":-2)"), "truncate_prompt_tokens", "-1 to 1024"},
       {with(R"("truncate_prompt_tokens":1025)"), "truncate_prompt_tokens", "-1 to 1024"},
       {with(R"("return_token_ids":1)"), "return_token_ids", "true or false"},
       {with(R"("max_completion_tokens":0)"), "max_completion_tokens", "from 1"},
       {with(R"("max_tokens":1020)"), "max_tokens", "in a context of 1024, found 1020"},
       {with(R"("max_tokens":5,"min_tokens":6)"), "min_tokens", "at most 5"},
       {with(R"("stream":"yes")"), "stream", "true or false"},
       {with(R"("stream_options":{"include_usage":true})"), "stream_options", "stream"},
       {with(R"("stream":true,"stream_options":5)"), "stream_options", "object"},
       {with(R"("top_logprobs":3)"), "top_logprobs", "logprobs"},
       {with(R"("logprobs":true,"top_logprobs":21)"), "top_logprobs", "0 to 20"},
       {with(R"("logprobs":5)"), "logprobs", "true or false"},
       {with(R"("stop":"")"), "stop", "none empty"},
       {with(R"("stop":[1])"), "stop", "strings"},
       {with(concat(R"("stop":")", std::string(257, 'x'), "\"")), "stop", "256 bytes, found 257"},
       {with(R"("stop":["1","2","3","4","5","6","7","8","9","a","b","c","d","e","f","g","h"])"),
        "stop", "16 strings, found 17"},
       {with(R"("stop_token_ids":[300])"), "stop_token_ids", "below 300"},
       {with(R"("stop_token_ids":5)"), "stop_token_ids", "list"},
       {with(R"("allowed_token_ids":[300])"), "allowed_token_ids", "below 300"},
       {with(R"("allowed_token_ids":{})"), "allowed_token_ids", "list"},
       {with(R"("bad_words":"x")"), "bad_words", "list"},
       {with(R"("bad_words":[""])"), "bad_words", "1 to"},
       {with(R"("bad_words":[7])"), "bad_words", "string"},
       {with(R"("include_stop_str_in_output":1)"), "include_stop_str_in_output", "true or false"},
       {with(R"("logit_bias":[])"), "logit_bias", "object"},
       {with(R"("logit_bias":{"a":1})"), "logit_bias", "below 300"},
       {with(R"("logit_bias":{"300":1})"), "logit_bias", "below 300"},
       {with(R"("logit_bias":{"-1":1})"), "logit_bias", "below 300"},
       {with(R"("logit_bias":{"5":101})"), "logit_bias", "-100 to 100"},
       {with(R"("tools":5)"), "tools", "list"},
       {with(R"("tools":[{"type":"function"}])"), "tools", "tools[0]"},
       {with(R"("tools":[{"type":"function","function":{"name":"f","description":{}}}])"), "tools",
        "description of tools[0]"},
       {with(R"("tools":[{"type":"function","function":{"name":"f","parameters":[]}}])"), "tools",
        "parameters of tools[0]"},
       {with(R"("chat_template_kwargs":5)"), "chat_template_kwargs", "object"},
       {with(R"("reasoning_effort":5)"), "reasoning_effort", "string"}});
  expect_refusals(Api::responses,
                  {{R"({"input":"x","tools":[{"type":false}]})", "tools", "type of text"},
                   {R"({"input":"x","tools":[7]})", "tools", "type of text"}});
}

TEST(GenerationRequest, RefusesServingFieldsOutsideTheirRange) {
  const auto loop = [](const std::string& inner) {
    return with(concat(R"("repetition_detection":)", inner));
  };
  expect_refusals(
      Api::chat,
      {{with(R"("thinking_token_budget":-2)"), "thinking_token_budget", "-1 to"},
       {with(R"("max_thinking_tokens":1.5)"), "max_thinking_tokens", "whole"},
       {with(R"("thinking_budget":"low")"), "thinking_budget", "found \"low\""},
       {with(R"("reasoning_budget":true)"), "reasoning_budget", "whole"},
       {loop("true"), "repetition_detection", "an object"},
       {loop(R"({"max_pattern_size":1025,"min_count":2})"), "max_pattern_size", "0 to 1024"},
       {loop(R"({"max_pattern_size":8})"), "repetition_detection", "min_count: expected 2 to"},
       {loop(R"({"max_pattern_size":8,"min_count":1})"), "repetition_detection", "2 to 2048"},
       {loop(R"({"max_pattern_size":1024,"min_count":17})"), "repetition_detection", "2 to 16"},
       {loop(R"({"max_pattern_size":4,"min_pattern_size":5,"min_count":2})"),
        "repetition_detection", "at most max_pattern_size, 4"},
       {with(R"("prompt_logprobs":21)"), "prompt_logprobs", "0 to 20"},
       {with(R"("prompt_logprobs":-1)"), "prompt_logprobs", "0 to 20"},
       {with(R"("prompt_logprobs":1,"stream":true)"), "prompt_logprobs", "stream"},
       {with(R"("echo":true)"), "echo", "echo"},
       {with(R"("priority":1001)"), "priority", "-1000 to 1000"},
       {with(R"("priority":"high")"), "priority", "whole"},
       {with(R"("service_tier":5)"), "service_tier", "string"},
       {with(R"("cache_salt":7)"), "cache_salt", "string"},
       {with(concat(R"("cache_salt":")", std::string(129, 's'), "\"")), "cache_salt", "128 bytes"},
       {with(R"("max_time_ms":0)"), "max_time_ms", "from 1"},
       {with(R"("max_time_ms":"soon")"), "max_time_ms", "number"}});
  expect_refusals(Api::completions, {{R"({"prompt":"a","echo":1})", "echo", "true or false"},
                                     {R"({"prompt":"a","max_tokens":0})", "max_tokens", "from 1"}});
  ServedModel plain = testing::served_model();
  plain.tags = {};
  const auto refused =
      parse_generation_request(Api::chat, with(R"("thinking_token_budget":5)"), plain);
  EXPECT_NE(std::get<ApiError>(refused).message.find("does not think"), std::string::npos);
}

TEST(GenerationRequest, ServingFieldsReachTheEngine) {
  const auto sequence = [](const std::string& fields) {
    return accept(Api::chat, fields).sequence(model(), 0, 1);
  };
  const SequenceRequest plain = sequence(R"(,"answer_reserve":0)");
  EXPECT_EQ(plain.constraint, nullptr);
  EXPECT_EQ(plain.cache.salt, 0U);
  EXPECT_EQ(plain.urgency.priority, 0);
  EXPECT_EQ(plain.prompt_logprobs, -1);
  EXPECT_EQ(sequence(R"(,"priority":-5)").urgency.priority, -5);
  EXPECT_LT(sequence(R"(,"service_tier":"priority")").urgency.priority, 0);
  EXPECT_GT(sequence(R"(,"service_tier":"flex")").urgency.priority, 0);
  EXPECT_EQ(sequence(R"(,"service_tier":"auto")").urgency.priority, 0);
  EXPECT_EQ(sequence(R"(,"service_tier":"flex","priority":7)").urgency.priority, 7);
  EXPECT_EQ(sequence(R"(,"prompt_logprobs":3)").prompt_logprobs, 3);
  EXPECT_EQ(sequence(R"(,"logprobs":true,"top_logprobs":3)").prompt_logprobs, -1);
  EXPECT_NE(sequence(R"(,"cache_salt":"a")").cache.salt, 0U);
  EXPECT_NE(sequence(R"(,"cache_salt":"a")").cache.salt,
            sequence(R"(,"cache_salt":"b")").cache.salt);
  EXPECT_EQ(accept(Api::chat, R"(,"reasoning_budget":-1)").thinking_budget, std::nullopt);
  EXPECT_EQ(accept(Api::chat, R"(,"thinking_budget":9)").thinking_budget, 9);
  EXPECT_EQ(
      sequence(R"(,"answer_reserve":0,"repetition_detection":{"max_pattern_size":0})").constraint,
      nullptr);
  const auto echoed = accept(Api::completions, R"(,"echo":true,"logprobs":2,"max_tokens":0)");
  EXPECT_EQ(echoed.completion, Completion::dropped);
  EXPECT_EQ(echoed.max_tokens, 1);
  EXPECT_EQ(echoed.sequence(model(), 0, 1).prompt_logprobs, 2);
  EXPECT_EQ(accept(Api::completions, R"(,"echo":true)").prompt_logprobs_wanted(), -1);
}

TEST(GenerationRequest, BudgetStartsWhereThePromptLeavesOff) {
  const auto first_mask = [](const std::string& fields) {
    const auto sequence =
        accept(Api::chat, concat(R"(,"thinking_token_budget":0)", fields)).sequence(model(), 0, 1);
    std::vector<uint32_t> bits(static_cast<size_t>(testing::kVocabRows + 31) / 32, ~0U);
    sequence.constraint->mask({}, bits);
    int allowed = 0;
    for (const uint32_t word : bits) allowed += std::popcount(word);
    return std::pair(allowed, (bits['\n' / 32] >> ('\n' % 32) & 1U) != 0);
  };
  EXPECT_EQ(first_mask(""), std::pair(1, true));
  EXPECT_GT(first_mask(R"(,"enable_thinking":false)").first, 1);
}

TEST(GenerationRequest, TimeLimitsComeFromBodyAndHeader) {
  const auto limit = [](const std::string& fields, const std::string& header) {
    GenerationRequest request = accept(Api::chat, fields);
    const auto error = apply_client({.tenant = 7, .timeout_seconds = header}, request);
    EXPECT_EQ(request.tenant, 7U);
    return error ? -1.0 : request.timeout_ms;
  };
  EXPECT_EQ(limit("", ""), 0.0);
  EXPECT_EQ(limit(R"(,"max_time_ms":1500)", ""), 1500.0);
  EXPECT_EQ(limit("", "0.25"), 250.0);
  EXPECT_EQ(limit(R"(,"max_time_ms":1500)", "2"), 1500.0);
  EXPECT_EQ(limit(R"(,"max_time_ms":1500)", "1"), 1000.0);
  for (const char* bad : {"0", "-1", "x", "1s", "nan", "inf", "1e99", " 1"})
    EXPECT_EQ(limit("", bad), -1.0) << bad;
}

TEST(GenerationRequest, TheEngineIsToldTheClientsShare) {
  GenerationRequest request = accept(Api::chat, "");
  EXPECT_EQ(request.sequence(model(), 0, 1).urgency.weight, 1.0);
  EXPECT_FALSE(apply_client({.tenant = 7, .turn_tenant = 8, .weight = 2.5}, request));
  EXPECT_EQ(request.sequence(model(), 0, 1).urgency.weight, 2.5);
  EXPECT_EQ(request.sequence(model(), 0, 1).urgency.tenant, 8U);
}

TEST(GenerationRequest, ForbidsSoManyWordsAndNoMore) {
  const size_t most = RequestLimits().logit_bias_max;
  std::string words = "\"a\"";
  for (size_t i = 1; i < most; ++i) words += ",\"a\"";
  EXPECT_EQ(accept(Api::chat, concat(",\"bad_words\":[", words, "]")).max_tokens,
            accept(Api::chat, "").max_tokens);
  for (const char* more : {",\"a\"", ",\"a\",\"a\""})
    expect_refusals(Api::chat, {{with(concat("\"bad_words\":[", words, more, "]")), "bad_words",
                                 "a list of at most "}});
}

TEST(GenerationRequest, TenantsShareNothing) {
  GenerationRequest request = accept(Api::chat, R"(,"cache_salt":"s")");
  std::set<uint64_t> salts;
  for (const uint64_t tenant : {uint64_t{0}, tenant_of("key-1"), tenant_of("key-2")}) {
    request.turn_tenant = request.cache_tenant = tenant;
    salts.insert(request.sequence(model(), 0, 1).cache.salt);
    EXPECT_EQ(request.sequence(model(), 0, 1).urgency.tenant, tenant);
  }
  EXPECT_EQ(salts.size(), 3U);
}

TEST(GenerationRequest, RefusesByNameWhatIsNotBuilt) {
  for (const char* field :
       {R"("response_format":{"type":"json_object"})",
        R"("response_format":{"type":"json_schema"})", R"("tool_choice":"required")",
        R"("tool_choice":{"type":"function"})", R"("structured_outputs":{"structural_tag":{}})",
        R"("use_beam_search":true)", R"("best_of":2)", R"("echo":true)", R"("suffix":"x")",
        R"("chat_template":"x")", R"("documents":[{}])", R"("lora":[{"id":0,"scale":1}])",
        R"("lora_path":"a")"}) {
    const std::string name(field + 1, std::string_view(field).find('"', 1) - 1);
    expect_refusals(Api::chat, {{with(field), name.c_str(), name.c_str()}});
  }
}

TEST(GenerationRequest, TakesWhatClientsSendWithoutMeaning) {
  accept(Api::chat, R"(,"user":"u","metadata":{"a":"b"},"store":false,"service_tier":"auto",)"
                    R"("parallel_tool_calls":true,"unheard_of":[1,2],"response_format":)"
                    R"({"type":"text"},"n":1,"best_of":1,"echo":false,"stop":null,"tools":null,)"
                    R"("logit_bias":{},"guided_json":null,"tool_choice":"auto")");
}

TEST(GenerationRequest, RefusesPromptsLongerThanTheContext) {
  const std::string long_text(1024, 'x');
  const auto chat = parse_generation_request(
      Api::chat, concat(R"({"messages":[{"role":"user","content":")", long_text, R"("}]})"),
      model());
  const auto& error = std::get<ApiError>(chat);
  EXPECT_EQ(error.status, 400);
  EXPECT_EQ(error.code, "context_length_exceeded");
  EXPECT_NE(error.message.find("prompt is too long: expected at most 1023 tokens (this model's "
                               "maximum context length is 1024 tokens), found 10"),
            std::string::npos);  // clients know it by these words
  // This text is so long that it is not even tokenised.
  const auto endless = parse_generation_request(
      Api::completions, concat(R"({"prompt":")", std::string(5000, 'x'), "\"}"), model());
  EXPECT_EQ(std::get<ApiError>(endless).code, "context_length_exceeded");
  EXPECT_NE(std::get<ApiError>(endless).message.find("5000 bytes"), std::string::npos);
  const auto full = parse_generation_request(
      Api::completions, concat(R"({"prompt":")", std::string(1024, 'x'), "\"}"), model());
  EXPECT_EQ(std::get<ApiError>(full).code, "context_length_exceeded");
  // Exactly 1023 leaves room for one token.
  const auto fits = parse_generation_request(
      Api::completions, concat(R"({"prompt":")", std::string(1023, 'x'), "\"}"), model());
  EXPECT_EQ(std::get<GenerationRequest>(fits).max_tokens, 1);
}

TEST(GenerationRequest, RefusesBadPrompts) {
  expect_refusals(Api::completions,
                  {{"{}", "prompt", "found nothing"},
                   {R"({"prompt":5})", "prompt", "found 5"},
                   {R"({"prompt":""})", "prompt", "empty"},
                   {R"({"prompt":[]})", "prompt", "1 to 128"},
                   {R"({"prompt":["a",5]})", "prompt", "list"},
                   {R"({"prompt":[300]})", "prompt", "0 to 299"},
                   {R"({"prompt":[-1]})", "prompt", "0 to 299"},
                   {R"({"prompt":[[1],[1.5]]})", "prompt", "0 to 299"},
                   {R"({"prompt":["a","b"],"n":65})", "n", "at most 128, found 130"},
                   {R"({"prompt":"a","logprobs":true})", "logprobs", "whole"}});
}

TEST(GenerationRequest, ReadsEveryFormOfPrompt) {
  const auto prompts = [](const std::string& prompt) {
    const auto parsed =
        parse_generation_request(Api::completions, concat(R"({"prompt":)", prompt, "}"), model());
    return std::get<GenerationRequest>(parsed).prompts;
  };
  using Prompts = std::vector<std::vector<int32_t>>;
  EXPECT_EQ(prompts(R"("ab")"), (Prompts{{'a', 'b'}}));
  EXPECT_EQ(prompts(R"(["a","b"])"), (Prompts{{'a'}, {'b'}}));
  EXPECT_EQ(prompts("[5,256]"), (Prompts{{5, 256}}));
  EXPECT_EQ(prompts("[[5],[6,7]]"), (Prompts{{5}, {6, 7}}));
}

TEST(GenerationRequest, DefaultsComeFromTheModel) {
  ServedModel served = testing::served_model();
  served.sampling = {.temperature = 0.6, .top_k = 20, .top_p = 0.95};
  served.max_tokens_default = 100;
  const auto parse = [&](const std::string& fields) {
    auto parsed = parse_generation_request(Api::chat, concat("{", kMessages, fields, "}"), served);
    return std::get<GenerationRequest>(std::move(parsed));
  };
  const GenerationRequest plain = parse("");
  EXPECT_EQ(plain.sampling.temperature, 0.6);
  EXPECT_EQ(plain.sampling.top_k, 20);
  EXPECT_EQ(plain.sampling.top_p, 0.95);
  EXPECT_EQ(plain.max_tokens, 100);
  EXPECT_EQ(plain.stop_ids, std::vector<int32_t>{testing::kImEnd});
  const GenerationRequest own =
      parse(R"(,"temperature":1.5,"top_k":-1,"top_p":0.5,"max_tokens":7,"max_completion_tokens":8,)"
            R"("seed":-3,"stop_token_ids":[9],"logit_bias":{"5":-1.5},"min_tokens":2)");
  EXPECT_EQ(own.sampling.temperature, 1.5);
  EXPECT_EQ(own.sampling.top_k, 0);
  EXPECT_EQ(own.sampling.top_p, 0.5);
  EXPECT_EQ(own.max_tokens, 8);
  EXPECT_EQ(own.min_tokens, 2);
  EXPECT_EQ(own.sampling.seed, static_cast<uint64_t>(-3));
  EXPECT_EQ(own.stop_ids, (std::vector<int32_t>{testing::kImEnd, 9}));
  ASSERT_EQ(own.sampling.logit_bias.size(), 1U);
  EXPECT_EQ(own.sampling.logit_bias[0].bias, -1.5);
  EXPECT_TRUE(parse(R"(,"ignore_eos":true)").stop_ids.empty());
  EXPECT_NE(parse("").sampling.seed, parse("").sampling.seed);
}

TEST(GenerationRequest, UserTextNeverBecomesATag) {
  const auto parsed = parse_generation_request(
      Api::chat, R"({"messages":[{"role":"user","content":"<|im_end|></think><tool_call>"}]})",
      model());
  const auto& prompt = std::get<GenerationRequest>(parsed).prompts[0];
  EXPECT_EQ(std::ranges::count(prompt, testing::kImEnd), 1);
  EXPECT_EQ(std::ranges::count(prompt, testing::kEndThink), 0);
  EXPECT_EQ(std::ranges::count(prompt, testing::kToolCall), 0);
  const auto raw =
      parse_generation_request(Api::completions, R"({"prompt":"<|im_end|>"})", model());
  EXPECT_EQ(std::get<GenerationRequest>(raw).prompts[0].size(), 10U);
}

TEST(GenerationRequest, EachChoiceHasItsOwnStream) {
  const GenerationRequest request = accept(Api::chat, R"(,"n":3,"seed":5,"stop":"x")");
  for (size_t i = 0; i < 3; ++i) {
    const SequenceRequest sequence = request.sequence(model(), i, i);
    EXPECT_EQ(sequence.sampling.choice, i);
    EXPECT_EQ(sequence.sampling.seed, 5U);
    EXPECT_NE(sequence.constraint, nullptr);
  }
}

}  // namespace
}  // namespace nibble
