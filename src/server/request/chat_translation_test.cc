// Messages and responses as chat requests: tables of body and expectation.
#include "server/request/chat_translation.h"

#include <gtest/gtest.h>

#include <span>

#include "server/request/generation_request.h"
#include "server/testing/test_model.h"

namespace nibble {
namespace {

Json parsed(const std::string& text) { return parse_json(text, "a test").value(); }

struct Case {
  const char* body;
  const char* chat;  // or part of the error's message
};

void expect(TranslatedBody (*translate)(const Json&), std::span<const Case> cases) {
  for (const Case& c : cases) {
    const TranslatedBody translated = translate(parsed(c.body));
    if (const auto* error = std::get_if<ApiError>(&translated)) {
      EXPECT_EQ(error->status, 400);
      EXPECT_NE(error->message.find(c.chat), std::string::npos) << error->message << "\n" << c.body;
      continue;
    }
    EXPECT_EQ(std::get<Json>(translated).dump(), parsed(c.chat).dump()) << c.body;
  }
}

TEST(MessagesTranslation, Conversations) {
  constexpr Case kMore[] = {
      {R"({"model":"claude-x","max_tokens":9,"system":"be brief","messages":[
          {"role":"user","content":"hi"},{"role":"assistant","content":"yes?"},
          {"role":"user","content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}},
                                    {"type":"text","text":"b"}]}],
          "stop_sequences":["END"],"stream":true,"top_k":3,"metadata":{"user_id":"u"}})",
       R"({"model":"claude-x","max_tokens":9,"stop":["END"],"stream":true,"top_k":3,
          "enable_thinking":false,"messages":[
          {"role":"system","content":[{"type":"text","text":"be brief"}]},
          {"role":"user","content":"hi"},{"role":"assistant","content":"yes?"},
          {"role":"user","content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}},
                                    {"type":"text","text":"b"}]}]})"},
      {R"({"messages":[{"role":"user","content":"hi"}],"thinking":{"type":"enabled",
            "budget_tokens":2048}})",
       R"({"enable_thinking":true,"thinking_token_budget":2048,
          "messages":[{"role":"user","content":"hi"}]})"},
      {R"({"messages":[{"role":"user","content":"hi"}],"thinking":{"type":"adaptive"}})",
       R"({"enable_thinking":true,"messages":[{"role":"user","content":"hi"}]})"},
      {R"({"system":[{"type":"text","text":"x-anthropic-billing-header: v=1; cch=a7;"},
                     {"type":"text","text":"You are"},
                     {"type":"text","text":"helpful","cache_control":{"type":"ephemeral"}}],
          "messages":[{"role":"user","content":"hi"}]})",
       R"({"enable_thinking":false,"messages":[{"role":"system","content":[
          {"type":"text","text":"You are"},
          {"type":"text","text":"\n\nhelpful","cache_control":{"type":"ephemeral"}}]},
          {"role":"user","content":"hi"}]})"},
      {R"({"system":"x-anthropic-billing-header: cch=1\nBe kind","messages":[{"role":"user",
            "content":"hi"},
          {"role":"system","content":"a reminder"}]})",
       R"({"enable_thinking":false,"messages":[
          {"role":"system","content":[{"type":"text","text":"Be kind"}]},
          {"role":"user","content":"hi"},{"role":"user","content":"a reminder"}]})"},
  };
  expect(chat_of_messages, kMore);
}

TEST(MessagesTranslation, CallsAndThinking) {
  constexpr Case kCases[] = {
      {R"({"messages":[{"role":"user","content":"weather?"},
          {"role":"assistant","content":[{"type":"thinking","thinking":"look","signature":"s"},
            {"type":"redacted_thinking","data":"x"},{"type":"text","text":"I look."},
            {"type":"tool_use","id":"t1","name":"w","input":{"at":"Rome"}},
            {"type":"tool_use","id":"t2","name":"w","input":{"at":"Bari"},
             "cache_control":{"type":"ephemeral"}}]},
          {"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"sun"},
            {"type":"tool_result","tool_use_id":"t2","content":[{"type":"text","text":"rain"}],
             "cache_control":{"type":"ephemeral"}},
            {"type":"text","text":"and now?"}]}],
          "tools":[{"name":"w","description":"d","input_schema":{"type":"object"}},
                   {"type":"web_search_20250305","name":"web_search"}],
          "tool_choice":{"type":"auto","disable_parallel_tool_use":true}})",
       R"({"tools":[{"type":"function","function":{"name":"w","description":"d",
            "parameters":{"type":"object"}}}],"tool_choice":"auto","parallel_tool_calls":false,
          "enable_thinking":false,"messages":[{"role":"user","content":"weather?"},
          {"role":"assistant","content":"I look.","reasoning_content":"look","tool_calls":[
            {"id":"t1","type":"function","function":{"name":"w","arguments":{"at":"Rome"}}},
            {"id":"t2","type":"function","function":{"name":"w","arguments":{"at":"Bari"}}}],
           "cache_control":{"type":"ephemeral"}},
          {"role":"tool","content":"sun","tool_call_id":"t1"},
          {"role":"tool","content":[{"type":"text","text":"rain"}],"tool_call_id":"t2",
           "cache_control":{"type":"ephemeral"}},
          {"role":"user","content":[{"type":"text","text":"and now?"}]}]})"},
      {R"({"messages":[{"role":"user","content":"x"}],
          "output_config":{"effort":"low","format":{"type":"json_schema","schema":{"a":1}}}})",
       R"({"response_format":{"type":"json_schema",
            "json_schema":{"name":"output","schema":{"a":1}}},
          "enable_thinking":false,"messages":[{"role":"user","content":"x"}]})"},
      {R"({"messages":[{"role":"user","content":"x"}],
          "output_format":{"type":"json_schema","schema":{"a":1}}})",
       R"({"response_format":{"type":"json_schema",
            "json_schema":{"name":"output","schema":{"a":1}}},
          "enable_thinking":false,"messages":[{"role":"user","content":"x"}]})"},
      {R"({"messages":[{"role":"user","content":"x"}],"tool_choice":{"type":"any"}})",
       R"({"tool_choice":"required","enable_thinking":false,
          "messages":[{"role":"user","content":"x"}]})"},
      {R"({"messages":[{"role":"user","content":"x"}],"tool_choice":{"type":"tool","name":"w"}})",
       R"({"tool_choice":{"type":"function","function":{"name":"w"}},"enable_thinking":false,
          "messages":[{"role":"user","content":"x"}]})"},
  };
  expect(chat_of_messages, kCases);
}

TEST(MessagesTranslation, PrefillAndImagesOfResults) {
  constexpr Case kCases[] = {
      {R"({"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y "}]})",
       R"({"enable_thinking":false,"continue_final_message":true,"messages":[
          {"role":"user","content":"x"},{"role":"assistant","content":"y "}]})"},
      {R"({"messages":[{"role":"user","content":"x"},{"role":"assistant","content":[
            {"type":"text","text":"y"}]}]})",
       R"({"enable_thinking":false,"continue_final_message":true,"messages":[
          {"role":"user","content":"x"},{"role":"assistant","content":"y"}]})"},
      {R"({"messages":[{"role":"user","content":"x"},{"role":"assistant","content":[
            {"type":"text","text":"y"},{"type":"tool_use","id":"t","name":"w","input":{}}]}]})",
       R"({"enable_thinking":false,"messages":[
          {"role":"user","content":"x"},{"role":"assistant","content":"y","tool_calls":[{"id":"t",
           "type":"function","function":{"name":"w","arguments":{}}}]}]})"},
      {R"({"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"a",
          "content":[{"type":"image","source":{}},{"type":"text","text":"y"},
                     {"type":"image","source":{}}]}]}]})",
       R"({"enable_thinking":false,"messages":[{"role":"tool","content":[
          {"type":"text",
           "text":"[An image was left out here: this server gives the model text only.]\n"},
          {"type":"text","text":"y"},
          {"type":"text",
           "text":"\n[An image was left out here: this server gives the model text only.]\n"}],
           "tool_call_id":"a"}]})"},
  };
  expect(chat_of_messages, kCases);
}

TEST(MessagesTranslation, Refusals) {
  constexpr Case kCases[] = {
      {R"({})", "messages: expected a list"},
      {R"({"messages":[{"role":"user","content":"x"}],"output_config":{"format":{"type":"x"}}})",
       "output_config.format: expected a type of json_schema"},
      {R"({"messages":[]})", "messages: expected a list"},
      {R"({"messages":[{"role":"user"}]})", "messages[0]: expected a role"},
      {R"({"messages":[{"role":"tool","content":"x"}]})", "messages[0]: expected a role"},
      {R"({"messages":["x"]})", "messages[0]: expected a role"},
      {R"({"messages":[{"role":"user","content":[{"type":"image","source":{}}]}]})",
       "messages[0].content[0]: a block of this type"},
      {R"({"messages":[{"role":"user","content":[7]}]})", "a block of this type"},
      {R"({"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"a",
          "content":[{"type":"document"}]}]}]})",
       "a block of this type"},
      {R"({"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"}],
          "thinking":{"type":"adaptive"}})",
       "messages end with the role assistant, with thinking"},
      {R"({"messages":[{"role":"user","content":"x"}],"thread":{"type":"new"}})",
       "send the whole conversation as messages, without thread"},
      {R"({"messages":[{"role":"user","content":"x"}],"system":7})",
       "system: expected a string or a list of text blocks, found 7"},
      {R"({"messages":[{"role":"user","content":"x"}],"tools":7})", "tools: expected a list"},
      {R"({"messages":[{"role":"user","content":"x"}],"tool_choice":"auto"})", "tool_choice"},
      {R"({"messages":[{"role":"user","content":"x"}],
          "tool_choice":{"type":"auto","disable_parallel_tool_use":1}})",
       "disable_parallel_tool_use: expected true or false"},
      {R"({"messages":[{"role":"user","content":"x"}],"thinking":{"type":"much"}})", "thinking"},
  };
  expect(chat_of_messages, kCases);
}

TEST(MessagesTranslation, SourcesOfImagesThatAreNone) {
  for (const char* source : {"{}", R"({"type":"base64"})", R"({"type":"base64","data":5})",
                             R"({"type":"url","data":"x"})", R"({"type":"file","file_id":"x"})"}) {
    const Json body = parsed(concat(
        R"({"messages":[{"role":"user","content":[{"type":"image","source":)", source, "}]}]}"));
    const auto translated = chat_of_messages(body, {.images = ImageParts::kept});
    const auto* error = std::get_if<ApiError>(&translated);
    ASSERT_NE(error, nullptr) << source;
    EXPECT_NE(error->message.find("messages[0].content[0].source: expected a type of base64 with "
                                  "data, or of url with url, found \""),
              std::string::npos)
        << error->message;
  }
}

TEST(ResponsesTranslation, Conversations) {
  constexpr Case kCases[] = {
      {R"({"model":"m","input":"hi","max_output_tokens":5,"store":true,"include":["x"],
          "reasoning":{"effort":"low","summary":"auto"},"text":{"format":{"type":"text"}}})",
       R"({"model":"m","max_completion_tokens":5,"response_format":{"type":"text"},
          "reasoning_effort":"low","messages":[{"role":"user","content":"hi"}]})"},
      {R"({"instructions":"be brief","input":[
          {"type":"message","role":"developer","content":[{"type":"input_text","text":"and kind"}]},
          {"role":"user","content":[{"type":"input_text","text":"weather?"}]},
          {"type":"reasoning","id":"rs","summary":[],"content":[{"type":"reasoning_text",
            "text":"look"}]},
          {"type":"message","role":"assistant","content":[{"type":"output_text",
            "text":"I look.","annotations":[]}]},
          {"type":"function_call","call_id":"c1","name":"w","arguments":"{\"at\":\"Rome\"}"},
          {"type":"function_call_output","call_id":"c1","output":[{"type":"input_text",
            "text":"sun"}]},
          {"role":"system","content":"at last"},
          {"role":"user","content":"and now?"}],
          "tools":[{"type":"function","name":"w","parameters":{"type":"object"},"strict":false},
                   {"type":"web_search"},{"type":"custom","name":"patch"}],"tool_choice":"auto"})",
       R"({"tools":[{"type":"function","function":{"name":"w","parameters":{"type":"object"},
            "strict":false}}],
          "tool_choice":"auto","messages":[
          {"role":"system","content":[{"type":"text","text":"be brief"},{"type":"text",
            "text":"\n\nand kind"},{"type":"text","text":"\n\nat last"}]},
          {"role":"user","content":[{"type":"text","text":"weather?"}]},
          {"role":"assistant","content":"I look.","reasoning_content":"look","tool_calls":[
            {"id":"c1","type":"function","function":{"name":"w","arguments":"{\"at\":\"Rome\"}"}}]},
          {"role":"tool","content":[{"type":"text","text":"sun"}],"tool_call_id":"c1"},
          {"role":"user","content":"and now?"}]})"},
      {R"({"input":[{"role":"user","content":"look"},
          {"type":"function_call","call_id":"c","name":"shot","arguments":"{}"},
          {"type":"function_call_output","call_id":"c","output":[
            {"type":"input_image","image_url":"data:image/png;base64,AA=="},
            {"type":"input_text","text":"done"},
            {"type":"input_image","file_id":"f"}]}]})",
       R"({"messages":[{"role":"user","content":"look"},
          {"role":"assistant","content":"","tool_calls":[
            {"id":"c","type":"function","function":{"name":"shot","arguments":"{}"}}]},
          {"role":"tool","content":[
            {"type":"text",
             "text":"[An image was left out here: this server gives the model text only.]\n"},
            {"type":"text","text":"done"},
            {"type":"text",
             "text":"\n[An image was left out here: this server gives the model text only.]\n"}],
           "tool_call_id":"c"}]})"},
      {R"({"input":"x","stop":["a"],"stop_token_ids":[3],"ignore_eos":true,"logit_bias":{"5":1},
          "presence_penalty":1,"frequency_penalty":1,"repetition_penalty":1.5,
          "structured_outputs":{"choice":["y"]}})",
       R"({"stop":["a"],"stop_token_ids":[3],"ignore_eos":true,"logit_bias":{"5":1},
          "presence_penalty":1,"frequency_penalty":1,"repetition_penalty":1.5,
          "structured_outputs":{"choice":["y"]},"messages":[{"role":"user","content":"x"}]})"},
      {R"({"input":"x","text":{"format":{"type":"json_schema","name":"n","schema":{},
            "strict":true}}})",
       R"({"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{},
            "strict":true}},
          "messages":[{"role":"user","content":"x"}]})"},
      {R"({"input":"x","text":{"format":{"type":"json_object","schema":{}}}})",
       R"({"response_format":{"type":"json_object","schema":{}},
          "messages":[{"role":"user","content":"x"}]})"},
  };
  expect(chat_of_responses, kCases);
}

TEST(ResponsesTranslation, Refusals) {
  constexpr Case kCases[] = {
      {R"({})", "input: expected a string"},
      {R"({"input":[]})", "input: expected a string"},
      {R"({"input":"x","previous_response_id":"resp_1"})", "responses are not stored here"},
      {R"({"input":"x","conversation":"c"})", "responses are not stored here"},
      {R"({"input":"x","background":true})", "background"},
      {R"({"input":[{"type":"item_reference","id":"i"}]})", "input[0]: an item of this type"},
      {R"({"input":[{"role":"user"}]})", "input[0]: expected content"},
      {R"({"input":[{"role":"king","content":"x"}]})", "expected a role"},
      {R"({"input":[{"role":"user","content":7}]})", "a string or a list of parts"},
      {R"({"input":"x","tools":{}})", "tools: expected a list"},
      {R"({"input":"x","text":"x"})", "text: expected an object"},
      {R"({"input":"x","store":"x"})", "store"},
  };
  expect(chat_of_responses, kCases);
}

TEST(ResponsesTranslation, EchoesWhatWasAsked) {
  const Json echoed =
      echoed_members(parsed(R"({"instructions":"i","temperature":0.5,"input":"x"})"));
  EXPECT_EQ(echoed.find("instructions")->as_string(), "i");
  EXPECT_EQ(echoed.find("temperature")->as_double(), 0.5);
  EXPECT_EQ(echoed.find("tool_choice")->as_string(), "auto");
  EXPECT_EQ(echoed.find("input"), nullptr);
}

TEST(ChatTranslation, AdaptersAreRefusedInEveryApi) {
  const char* kBodies[] = {R"({"messages":[{"role":"user","content":"a"}],"max_tokens":5)",
                           R"({"input":"a")"};
  const Api kApis[] = {Api::messages, Api::responses};
  for (size_t i = 0; i < 2; ++i) {
    const auto parsed = parse_generation_request(
        kApis[i], concat(kBodies[i], R"(,"lora_path":"a"})"), testing::served_model(), {});
    const auto* error = std::get_if<ApiError>(&parsed);
    ASSERT_NE(error, nullptr);
    EXPECT_EQ(error->status, 400);
    EXPECT_NE(error->message.find("adapters (LoRA) are not served"), std::string::npos);
  }
}

}  // namespace
}  // namespace nibble
