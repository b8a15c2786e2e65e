// System messages joined, last messages continued, and what the template refuses by its message:
// with the family's own template, and over the server with the prefix cache.
#include "server/request/chat_prompt.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "server/testing/test_server.h"
#include "testing/source_dir.h"

namespace nibble {
namespace {

using testing::kChat;
using testing::post;

const ChatTemplate& family_template() {
  static const ChatTemplate made = [] {
    const auto source =
        read_text_file(NIBBLE_SOURCE_DIR "/tests/golden/templates/qwen3.6.jinja", 1 << 20);
    CHECK(source.ok());
    return ChatTemplate::compile(source.value(), "qwen3.6").value();
  }();
  return made;
}

Json list(const std::string& text) { return parse_json(text, "messages").value(); }

/// The prompt, or "error: " and why there is none.
std::string prompt_of(const std::string& messages, AnswerStart start = AnswerStart::anew,
                      const std::string& kwargs = "{}") {
  ChatMessages joined = join_system_messages(list(messages));
  const TemplateInput input{.messages = joined.list,
                            .tools = {},
                            .documents = {},
                            .kwargs = list(kwargs),
                            .generation_prompt = start == AnswerStart::anew
                                                     ? GenerationPrompt::add
                                                     : GenerationPrompt::omit,
                            .now = {}};
  const auto rendered = render_chat(family_template(), input, joined.places, start);
  if (const auto* error = std::get_if<ApiError>(&rendered)) {
    EXPECT_EQ(error->status, 400);
    EXPECT_EQ(error->param, "messages");
    EXPECT_EQ(error->message.find('\n'), std::string::npos);
    return "error: " + error->message;
  }
  return std::get<RenderedPrompt>(rendered).flat();
}

TEST(ChatPrompt, SystemMessagesAreJoinedInTheirOrder) {
  struct Row {
    const char* messages;
    const char* joined;
  };
  const Row kRows[] = {
      {R"([{"role":"system","content":"A"},{"role":"user","content":"u"}])",
       R"([{"role":"system","content":"A"},{"role":"user","content":"u"}])"},
      {R"([{"role":"user","content":"u"}])", R"([{"role":"user","content":"u"}])"},
      {R"([{"role":"developer","content":"A"},{"role":"user","content":"u"}])",
       R"([{"role":"system","content":[{"type":"text","text":"A"}]},
           {"role":"user","content":"u"}])"},
      {R"([{"role":"user","content":"u"},{"role":"developer","content":"A"},
           {"role":"assistant","content":"a"},{"role":"system","content":[
             {"type":"text","text":"B"},{"type":"text","text":"C"}]},
           {"role":"user","content":"v"}])",
       R"([{"role":"system","content":[{"type":"text","text":"A"},{"type":"text","text":"\n\nB"},
             {"type":"text","text":"C"}]},
           {"role":"user","content":"u"},{"role":"assistant","content":"a"},
           {"role":"user","content":"v"}])"},
      {R"([{"role":"system","content":""},{"role":"user","content":"u"},
           {"role":"system","content":"B","cache_control":{"type":"ephemeral"}},
           {"role":"system"}])",
       R"([{"role":"system","content":[
             {"type":"text","text":"B","cache_control":{"type":"ephemeral"}}]},
           {"role":"user","content":"u"}])"},
  };
  for (const Row& row : kRows)
    EXPECT_EQ(join_system_messages(list(row.messages)).list.dump(), list(row.joined).dump());
  const ChatMessages joined = join_system_messages(
      list(R"([{"role":"user"},{"role":"developer"},{"role":"tool"},{"role":"system"}])"));
  EXPECT_EQ(joined.places, (std::vector<size_t>{1, 0, 2}));
  EXPECT_EQ(prompt_of(R"([{"role":"user","content":"u"},{"role":"developer","content":"A"},
                          {"role":"system","content":"B"}])"),
            "<|im_start|>system\nA\n\nB<|im_end|>\n<|im_start|>user\nu<|im_end|>\n"
            "<|im_start|>assistant\n<think>\n");
}

TEST(ChatPrompt, RefusalsOfTheTemplateNameTheMessage) {
  struct Row {
    const char* messages;
    const char* says;
  };
  const Row kRows[] = {
      {R"([{"role":"wizard","content":"x"}])",
       "error: messages[0] (role \"wizard\"): expected a message that the chat template of this "
       "model accepts, found one of which it says \"Unexpected message role.\""},
      {R"([{"role":"user","content":"x"},{"role":"developer","content":"x"},
           {"role":"user","content":"x"},{"role":"function","content":"x"},
           {"role":"user","content":"x"},{"role":"wizard","content":"x"}])",
       "error: messages[3] (role \"function\")"},
      {R"([{"role":"system","content":"x"}])",
       "error: messages: expected a conversation that the chat template of this model accepts, "
       "found one of which it says \"No user query found in messages.\"; add a message of the role "
       "user"},
      {R"([{"role":"assistant","content":"x"},{"role":"tool","content":"y"}])",
       "add a message of the role user"},
  };
  for (const Row& row : kRows)
    EXPECT_NE(prompt_of(row.messages).find(row.says), std::string::npos) << prompt_of(row.messages);
}

TEST(ChatPrompt, TheLastMessageGoesOn) {
  const auto continued = [](const std::string& last, const std::string& kwargs = "{}") {
    return prompt_of(concat(R"([{"role":"user","content":"u"},)", last, "]"),
                     AnswerStart::continued, kwargs);
  };
  const std::string begin = "<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\n";
  const std::string empty = begin + "<think>\n\n</think>\n\n";
  // Thinking is closed before the text, whether it is on or off.
  for (const char* kwargs : {"{}", R"({"enable_thinking":false})", R"({"enable_thinking":true})"})
    EXPECT_EQ(continued(R"({"role":"assistant","content":"I say"})", kwargs), empty + "I say");
  EXPECT_EQ(continued(R"({"role":"assistant","content":"I say","reasoning_content":"hm"})"),
            begin + "<think>\nhm\n</think>\n\nI say");
  // White space at its end stays, texts that look like what follows are no borders.
  EXPECT_EQ(continued(R"({"role":"assistant","content":" I say \n"})"), empty + "I say \n");
  EXPECT_EQ(continued(R"({"role":"assistant","content":"im_end"})"), empty + "im_end");
  EXPECT_EQ(continued(R"({"role":"assistant","content":"<|im_end|>"})"), empty + "<|im_end|>");
  EXPECT_EQ(continued(R"({"role":"assistant","content":[{"type":"text","text":"a"},
                          {"type":"text","text":"b "}]})"),
            empty + "ab ");
  EXPECT_EQ(continued(R"({"role":"assistant","content":"<think>\nx</think>y"})"),
            begin + "<think>\nx\n</think>\n\ny");
  struct Row {
    const char* last;
    const char* found;
  };
  const Row kRows[] = {
      {R"({"role":"user","content":"x"})", "found the role \"user\""},
      {R"({"role":"assistant","content":" \n"})", "found no text"},
      {R"({"role":"assistant","reasoning_content":"x"})", "found no text"},
      {R"({"role":"assistant","content":"x","tool_calls":[{"function":{"name":"f"}}]})",
       "found tool calls"},
  };
  for (const Row& row : kRows) {
    const std::string refused = continued(row.last);
    EXPECT_NE(refused.find("error: messages[1], the message to continue: expected the role "
                           "assistant, some text, and no tool calls, "),
              std::string::npos)
        << refused;
    EXPECT_NE(refused.find(row.found), std::string::npos) << refused;
  }
}

/// The text of the last message is the user's: tags in it are text.
TEST(ChatPrompt, TagsInTheLastMessageAreText) {
  const auto parsed = parse_generation_request(
      Api::chat,
      R"({"messages":[{"role":"user","content":"u"},{"role":"assistant","content":"<think>"}],)"
      R"("continue_final_message":true,"add_generation_prompt":false})",
      testing::served_model());
  const auto& request = std::get<GenerationRequest>(parsed);
  const std::vector<int32_t>& prompt = request.prompts.front();
  const std::string last = "<|im_start|>assistant\n<think>";
  EXPECT_EQ(std::ranges::count(prompt, testing::kThink), 0);
  EXPECT_EQ(testing::served_model().tokenizer.decode(
                std::span(prompt).last(1 + last.size() - std::string("<|im_start|>").size()),
                SkipSpecial::no),
            last);
}

TEST(ChatPrompt, WhatCannotStandBesideAContinuedMessage) {
  const ServedModel model = testing::served_model_with_grammars();
  const std::string kTools =
      R"("tools":[{"type":"function","function":{"name":"f","strict":true}}],)";
  struct Row {
    std::string fields;
    const char* param;  // empty: it is taken
  };
  const Row kRows[] = {
      {R"("continue_final_message":true)", ""},
      {R"("continue_final_message":true,"add_generation_prompt":false)", ""},
      {R"("continue_final_message":false,"add_generation_prompt":true)", ""},
      {R"("continue_final_message":true,"add_generation_prompt":true)", "add_generation_prompt"},
      {R"("add_generation_prompt":false)", "add_generation_prompt"},
      {R"("continue_final_message":1)", "continue_final_message"},
      {concat(kTools, R"("continue_final_message":true)"), ""},
      {concat(kTools, R"("tool_choice":"required","continue_final_message":true)"), "tools"},
      {R"("response_format":{"type":"json_object"},"continue_final_message":true)",
       "response_format"},
      {R"("guided_choice":["a"],"continue_final_message":true)", "guided_choice"},
  };
  for (const Row& row : kRows) {
    const auto parsed = parse_generation_request(
        Api::chat,
        concat(R"({"messages":[{"role":"user","content":"u"},{"role":"assistant","content":"a"}],)",
               row.fields, "}"),
        model);
    const auto* error = std::get_if<ApiError>(&parsed);
    EXPECT_EQ(error != nullptr ? error->param : "", row.param) << row.fields;
  }
  const auto raw = parse_generation_request(
      Api::completions, R"({"prompt":"p","continue_final_message":true})", model);
  EXPECT_NE(std::get_if<ApiError>(&raw), nullptr);
}

class ChatPromptTest : public testing::ServerTest {
 protected:
  /// Tokens from the cache, of a chat with these messages.
  int64_t cached(const std::string& messages) {
    const auto [status, body] =
        ask(post(kChat, concat(R"({"max_tokens":1,"messages":[)", messages, "]}")));
    EXPECT_EQ(status, 200) << body;
    const Json answer = parse_json(body, "the answer").value();
    return at(at(at(answer, "usage"), "prompt_tokens_details"), "cached_tokens").as_int();
  }
};

TEST_F(ChatPromptTest, JoinedMessagesAreFoundInThePrefixCache) {
  start("x");
  const std::string user = concat(R"({"role":"user","content":")", std::string(200, 'u'), "\"}");
  const std::string rule = R"({"role":"developer","content":"be brief"})";
  const std::string more = R"({"role":"assistant","content":"a"},{"role":"user","content":"v"})";
  EXPECT_EQ(cached(user + "," + rule), 0);
  const int64_t next = cached(user + "," + rule + "," + more);
  EXPECT_GE(next, 192);
  // Where the rule stands does not matter, another rule does.
  EXPECT_GE(cached(rule + "," + user + "," + more), next);
  EXPECT_EQ(cached(user + "," + rule + "," + more + R"(,{"role":"system","content":"!"})"), 0);
  const std::string image =
      R"({"role":"developer","content":[{"type":"image_url","image_url":{}}]})";
  const auto [status, body] = ask(post(kChat, concat(R"({"messages":[)", user, ",", image, "]}")));
  EXPECT_EQ(status, 400);
  EXPECT_NE(body.find("messages[1].content: parts of type"), std::string::npos) << body;
}

}  // namespace
}  // namespace nibble
