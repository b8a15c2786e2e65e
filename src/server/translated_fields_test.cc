// Fields of messages and responses are those of chats: each is passed on under its name there.
#include <gtest/gtest.h>

#include "server/request/chat_translation.h"

namespace nibble {
namespace {

Json parsed(const std::string& text) { return parse_json(text, "a test").value(); }

using Pairs = std::vector<std::pair<const char*, const char*>>;

/// Each field alone, with a value that the translation does not look at.
void expect_passed_on(TranslatedBody (*translate)(const Json&), std::string_view base,
                      const Pairs& names) {
  for (const auto& [name, chat_name] : names) {
    const TranslatedBody translated =
        translate(parsed(concat("{", base, ",\"", name, "\":{\"a\":[1]}}")));
    ASSERT_TRUE(std::holds_alternative<Json>(translated)) << name;
    const Json* value = std::get<Json>(translated).find(chat_name);
    ASSERT_NE(value, nullptr) << name;
    EXPECT_EQ(value->dump(), R"({"a":[1]})") << name;
  }
}

TEST(TranslatedFields, OfMessages) {
  expect_passed_on(chat_of_messages, R"("messages":[{"role":"user","content":"a"}])",
                   {{"model", "model"},
                    {"max_tokens", "max_tokens"},
                    {"stop_sequences", "stop"},
                    {"stream", "stream"},
                    {"temperature", "temperature"},
                    {"top_p", "top_p"},
                    {"top_k", "top_k"},
                    {"min_p", "min_p"},
                    {"seed", "seed"},
                    {"cache_salt", "cache_salt"},
                    {"priority", "priority"},
                    {"max_time_ms", "max_time_ms"},
                    {"answer_reserve", "answer_reserve"},
                    {"chat_template_kwargs", "chat_template_kwargs"},
                    {"mm_processor_kwargs", "mm_processor_kwargs"}});
}

TEST(TranslatedFields, OfResponses) {
  expect_passed_on(chat_of_responses, R"("input":"a")",
                   {{"model", "model"},
                    {"max_output_tokens", "max_completion_tokens"},
                    {"stream", "stream"},
                    {"temperature", "temperature"},
                    {"top_p", "top_p"},
                    {"parallel_tool_calls", "parallel_tool_calls"},
                    {"service_tier", "service_tier"},
                    {"top_k", "top_k"},
                    {"min_p", "min_p"},
                    {"seed", "seed"},
                    {"stop", "stop"},
                    {"stop_token_ids", "stop_token_ids"},
                    {"ignore_eos", "ignore_eos"},
                    {"logit_bias", "logit_bias"},
                    {"presence_penalty", "presence_penalty"},
                    {"frequency_penalty", "frequency_penalty"},
                    {"repetition_penalty", "repetition_penalty"},
                    {"structured_outputs", "structured_outputs"},
                    {"cache_salt", "cache_salt"},
                    {"priority", "priority"},
                    {"max_time_ms", "max_time_ms"},
                    {"answer_reserve", "answer_reserve"},
                    {"thinking_token_budget", "thinking_token_budget"},
                    {"enable_thinking", "enable_thinking"},
                    {"chat_template_kwargs", "chat_template_kwargs"},
                    {"mm_processor_kwargs", "mm_processor_kwargs"},
                    {"tool_choice", "tool_choice"}});
}

/// A chat of one exchange of a custom tool, and the forms that texts have.
TEST(TranslatedFields, ResponsesHaveManyKindsOfItems) {
  const TranslatedBody translated = chat_of_responses(parsed(R"({"input":[
      {"type":"custom_tool_call","call_id":"c","name":"patch","input":"text"},
      {"type":"custom_tool_call_output","call_id":"c","output":"done"},
      {"type":"function_call_output","call_id":"d"},
      {"type":"reasoning","summary":[{"type":"summary_text","text":"in "},
                                     {"type":"summary_text","text":"short"}],"content":[]},
      {"role":"assistant","content":[{"type":"refusal","refusal":"no"},
                                     {"type":"output_text","text":"!"}]},
      {"role":"user","content":"so?"}],
    "tools":[{"type":"function","name":"f","description":"d"}],
    "tool_choice":{"type":"function","name":"f"},
    "include":["message.output_text.logprobs"],"top_logprobs":3})"));
  ASSERT_TRUE(std::holds_alternative<Json>(translated));
  const Json expected = parsed(R"({
    "tools":[{"type":"function","function":{"name":"f","description":"d"}}],
    "tool_choice":{"type":"function","function":{"name":"f"}},"logprobs":true,"top_logprobs":3,
    "messages":[
      {"role":"assistant","content":"","tool_calls":[{"id":"c","type":"function",
        "function":{"name":"patch","arguments":{"input":"text"}}}]},
      {"role":"tool","content":"done","tool_call_id":"c"},
      {"role":"tool","content":"","tool_call_id":"d"},
      {"role":"assistant","content":"no!","reasoning_content":"in short"},
      {"role":"user","content":"so?"}]})");
  EXPECT_EQ(std::get<Json>(translated).dump(), expected.dump());
}

TEST(TranslatedFields, ImagesKeepTheirDetailAndTheirMark) {
  const auto first_part = [](const TranslatedBody& translated) {
    const Json& message = std::get<Json>(translated).find("messages")->as_array().front();
    return message.find("content")->as_array().front().dump();
  };
  const TranslationOptions kept{.images = ImageParts::kept};
  const Json response = parsed(R"({"input":[{"role":"user","content":[
      {"type":"input_image","image_url":"u","detail":"low"}]}]})");
  EXPECT_EQ(first_part(chat_of_responses(response, kept)),
            R"({"type":"image_url","image_url":{"url":"u","detail":"low"}})");
  const Json message = parsed(R"({"messages":[{"role":"user","content":[{"type":"image",
      "source":{"type":"url","url":"u"},"cache_control":{"type":"ephemeral"}}]}]})");
  EXPECT_EQ(first_part(chat_of_messages(message, kept)),
            R"({"type":"image_url","image_url":{"url":"u"},"cache_control":{"type":"ephemeral"}})");
}

}  // namespace
}  // namespace nibble
