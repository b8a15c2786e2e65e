// Every refusal of a request's fields as the client reads it, against
// tests/golden/answers/refusals.txt: the field, what is expected of it, what was found and what to
// do. A failing test names the file to take over where a change is meant.
#include <gtest/gtest.h>

#include "server/request/generation_request.h"
#include "server/testing/test_images.h"
#include "testing/golden_text.h"

namespace nibble {
namespace {

class Refusals : public ::testing::Test {
 protected:
  void ask(Api api, const ServedModel& model, const std::string& body) {
    constexpr std::string_view kNames[] = {"chat", "completions", "messages", "responses"};
    const auto read = parse_generation_request(api, body, model);
    const auto* error = std::get_if<ApiError>(&read);
    ASSERT_NE(error, nullptr) << body;
    found_ += concat(kNames[static_cast<size_t>(api)], " ", body.substr(0, 200), "\n  ",
                     error->status, " ", error->type, ", param ", Json(error->param).dump(),
                     ", code ", Json(error->code).dump(), "\n  ", error->message, "\n");
  }
  void chat(std::initializer_list<const char*> fields, const ServedModel& model) {
    for (const char* field : fields)
      ask(Api::chat, model, concat(R"({"messages":[{"role":"user","content":"hi"}],)", field, "}"));
  }
  void bodies(Api api, std::initializer_list<const char*> all, const ServedModel& model) {
    for (const char* body : all) ask(api, model, body);
  }
  std::string found_;
};

TEST_F(Refusals, SayWhatIsExpectedAndFound) {
  const ServedModel model = testing::served_model();
  const ServedModel pictures = testing::model_with_images();
  ServedModel plain = testing::served_model();
  plain.tags = {};
  ServedModel no_template = testing::served_model();
  no_template.chat_template.reset();
  ServedModel strict = testing::served_model();
  strict.policy.unknown_fields = UnknownFields::refused;
  const ServedModel grammars = testing::served_model_with_grammars();

  chat({R"("temperature":-1)",
        R"("top_p":2)",
        R"("top_k":1.5)",
        R"("n":0)",
        R"("max_tokens":0)",
        R"("max_tokens":2000)",
        R"("min_tokens":6,"max_tokens":5)",
        R"("truncate_prompt_tokens":0)",
        R"("truncation_side":"up")",
        R"("stream":5)",
        R"("stream_options":{})",
        R"("stream":true,"stream_options":5)",
        R"("stream":true,"stream_options":{"include_usage":5})",
        R"("top_logprobs":3)",
        R"("stop":5)",
        R"("stop":[""])",
        R"("stop":["1","2","3","4","5","6","7","8","9","a","b","c","d","e","f","g","h"])",
        R"("stop_token_ids":5)",
        R"("stop_token_ids":[300])",
        R"("allowed_token_ids":[300])",
        R"("bad_words":5)",
        R"("bad_words":[5])",
        R"("logit_bias":5)",
        R"("logit_bias":{"x":1})",
        R"("logit_bias":{"5":101})",
        R"("model":"gpt")",
        R"("thinking_token_budget":-2)",
        R"("repetition_detection":5)",
        R"("repetition_detection":{"max_pattern_size":5000})",
        R"("repetition_detection":{"max_pattern_size":4,"min_pattern_size":5})",
        R"("repetition_detection":{"max_pattern_size":4,"min_count":1})",
        R"("prompt_logprobs":1,"stream":true)",
        R"("priority":5000)",
        R"("max_time_ms":0)",
        R"("logprob_token_ids":[1])",
        R"("kv_transfer_params":{})",
        R"("logits_processors":["x"])",
        R"("custom_logit_processor":"x")",
        R"("use_beam_search":true)",
        R"("lora_path":"x")",
        R"("length_penalty":2)",
        R"("suffix":"x")",
        R"("best_of":2)",
        R"("echo":true)",
        R"("tools":5)",
        R"("tools":[{"type":"function"}])",
        R"("tools":[{"function":{"name":"f","description":5}}])",
        R"("tools":[{"function":{"name":"f","parameters":5}}])",
        R"("tool_choice":5)",
        R"("tool_choice":"required")",
        R"("tools":[{"function":{"name":"f"}}],"tool_choice":{"function":{"name":"g"}})",
        R"("reasoning_field":"x")",
        R"("chat_template_kwargs":5)",
        R"("chat_template":"x")",
        R"("documents":[1])",
        R"("functions":[1])",
        R"("audio":{})",
        R"("modalities":["audio"])",
        R"("add_generation_prompt":false)",
        R"("add_generation_prompt":true,"continue_final_message":true)",
        R"("continue_final_message":true)",
        R"("response_format":{"type":"x"})",
        R"("response_format":{"type":"json_schema","json_schema":{"strict":5}})",
        R"("response_format":{"type":"json_object"})",
        R"("guided_regex":5)",
        R"("guided_choice":"x")",
        R"("guided_regex":"a","guided_grammar":"b")",
        R"("structured_outputs":5)",
        R"("structured_outputs":{"structural_tag":{}})"},
       model);
  chat({R"("thinking_token_budget":5)"}, plain);
  chat({R"("n":1)"}, no_template);
  chat({R"("temprature":1)"}, strict);
  const char* forced = R"("tools":[{"function":{"name":"f"}}],"tool_choice":"required",)";
  chat(
      {concat(forced, R"("guided_regex":"a")").c_str(),
       R"("guided_regex":"a","allowed_token_ids":[97])", R"("guided_regex":"a","bad_words":["x"])"},
      grammars);
  bodies(Api::chat,
         {"5", "{}", R"({"messages":5})", R"({"messages":[5]})",
          R"({"messages":[{"role":"user","content":5}]})",
          R"({"messages":[{"role":"user","content":[{"type":"text"}]}]})",
          R"({"messages":[{"role":"user","content":[{"type":"audio"}]}]})",
          R"({"messages":[{"role":"king","content":"a"}]})",
          R"({"continue_final_message":true,"messages":[{"role":"assistant","content":" "}]})",
          R"({"continue_final_message":true,"messages":[{"role":"assistant","content":"a",)"
          R"("tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}]})"},
         model);
  bodies(Api::chat,
         {R"({"continue_final_message":true,"response_format":{"type":"json_object"},)"
          R"("messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]})"},
         grammars);
  bodies(Api::completions,
         {"{}", R"({"prompt":5})", R"({"prompt":""})", R"({"prompt":[]})", R"({"prompt":[300]})",
          R"({"prompt":[{}]})", R"({"prompt":["a","b"],"n":65})", R"({"prompt":"a","logprobs":21})",
          R"({"prompt":"a","continue_final_message":true})"},
         model);
  bodies(Api::messages,
         {"{}", R"({"messages":[{"role":"user","content":[{"type":"document"}]}]})",
          R"({"messages":[{"role":"assistant","content":[{"type":"image"}]}]})",
          R"({"messages":[{"role":"user","content":"a"}],"system":5})",
          R"({"messages":[{"role":"user","content":"a"}],"system":[{"type":"x"}]})",
          R"({"messages":[{"role":"king","content":"a"}]})",
          R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}],)"
          R"("thinking":{"type":"enabled"}})",
          R"({"messages":[{"role":"user","content":"a"}],"tools":5})",
          R"({"messages":[{"role":"user","content":"a"}],"tool_choice":{"type":"x"}})",
          R"({"messages":[{"role":"user","content":"a"}],"output_config":{"format":{}}})",
          R"({"messages":[{"role":"user","content":"a"}],"thinking":{"type":"x"}})",
          R"({"messages":[{"role":"user","content":"a"}],"thread":5})"},
         model);
  bodies(Api::responses,
         {"{}", R"({"input":5})", R"({"input":[{"role":"user"}]})",
          R"({"input":[{"role":"king","content":"a"}]})",
          R"({"input":[{"role":"user","content":5}]})", R"({"input":[{"type":"x"}]})",
          R"({"input":"a","tools":5})", R"({"input":"a","tools":[5]})", R"({"input":"a","text":5})",
          R"({"input":"a","previous_response_id":"r"})", R"({"input":"a","conversation":"c"})",
          R"({"input":"a","background":true})", R"({"input":"a","prompt":{}})"},
         model);
  const auto part = [](const char* json) {
    return concat(R"({"messages":[{"role":"user","content":[)", json, "]}]}");
  };
  for (const char* json :
       {R"({"type":"image_url"})", R"({"type":"image_url","file_id":"f"})",
        R"({"type":"image_url","image_url":{"url":"data:","detail":"x"}})",
        R"({"type":"video_url"})", R"({"type":"video_url","video_url":5})",
        R"({"type":"video_url","video_url":"data:","fps":0})", R"({"type":"image"})",
        R"({"type":"video"})", R"({"type":"image_url","image_url":"data:;base64,AAAA"})",
        R"({"type":"image_url","image_url":"x"})",
        R"({"type":"image_url","image_url":"https://a.test/b"})",
        R"({"type":"video_url","video_url":"data:video/mp4;base64,AAAA"})",
        R"({"type":"video","video":["1","2","3","4","5","6","7","8","9"]})",
        R"({"type":"video","video":["a"]},{"type":"video","video":["a"]},)"
        R"({"type":"video","video":["a"]})",
        R"({"type":"audio"})"})
    ask(Api::chat, pictures, part(json));
  const std::string image = testing::image_part(testing::data_url(testing::png(32, 32)));
  for (const std::string& fields :
       {std::string(R"(,"truncate_prompt_tokens":50)"), std::string(R"(,"mm_processor_kwargs":5)")})
    ask(Api::chat, pictures,
        concat(R"({"messages":[{"role":"user","content":[)", image, "]}]", fields, "}"));
  ask(Api::completions, pictures, concat(R"({"prompt":[)", testing::kImagePad, "]}"));
  expect_golden_text("answers/refusals.txt", found_);
}

}  // namespace
}  // namespace nibble
