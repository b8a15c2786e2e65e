// Fields whose effect is more than a number: structures, places in the cache, profiles.
#include <gtest/gtest.h>

#include <algorithm>

#include "server/request/generation_request.h"
#include "server/request/known_fields.h"
#include "server/testing/test_model.h"

namespace nibble {
namespace {

GenerationRequest taken(const std::string& fields, const ServedModel& served) {
  auto read = parse_generation_request(
      Api::chat, concat(R"({"messages":[{"role":"user","content":"a"}],)", fields, "}"), served);
  if (auto* error = std::get_if<ApiError>(&read)) {
    ADD_FAILURE() << fields << ": " << error->message;
    return {};
  }
  return std::move(std::get<GenerationRequest>(read));
}

TEST(FieldEffects, NoneIsKnownWhereClientsMeanNone) {
  const std::pair<Api, std::vector<const char*>> kNames[] = {
      {Api::chat,
       {"user", "store", "metadata", "prompt_cache_key", "prompt_cache_retention", "request_id",
        "verbosity", "safety_identifier"}},
      {Api::completions,
       {"user", "store", "metadata", "prompt_cache_key", "prompt_cache_retention", "request_id",
        "top_logprobs", "enable_thinking", "reasoning_effort", "chat_template_kwargs",
        "safety_identifier"}},
      {Api::messages,
       {"metadata", "service_tier", "context_management", "container", "mcp_servers"}},
      {Api::responses,
       {"user", "metadata", "prompt_cache_key", "prompt_cache_retention", "max_tool_calls",
        "stream_options", "truncation", "safety_identifier"}}};
  for (const auto& [api, names] : kNames)
    for (const char* name : names)
      EXPECT_FALSE(unknown_field(api, json_object({{name, Json(1)}}))) << name;
}

TEST(FieldEffects, StructuresOfJsonAreSaidByAFlag) {
  using Kind = GrammarSource::Kind;
  const ServedModel served = testing::served_model_with_grammars();
  const auto kind = [&](const std::string& fields) -> std::optional<Kind> {
    const GenerationRequest request = taken(fields, served);
    if (!request.structure) return std::nullopt;
    return request.structure->kind;
  };
  EXPECT_EQ(kind(R"("structured_outputs":{"json_object":true})"), Kind::json_object);
  EXPECT_EQ(kind(R"("structured_outputs":{"json_object":false})"), std::nullopt);
  EXPECT_EQ(kind(R"("response_format":{"type":"json_object"})"), Kind::json_object);
  EXPECT_EQ(kind(R"("response_format":{"type":"text"})"), std::nullopt);
}

TEST(FieldEffects, EveryNameOfAStructureIsTaken) {
  using Kind = GrammarSource::Kind;
  struct Row {
    const char *name, *value;
    Kind kind;
  };
  const ServedModel served = testing::served_model_with_grammars();
  for (const Row& row : {Row{"guided_json", "{}", Kind::json_schema},
                         {"guided_regex", "\"a\"", Kind::regex},
                         {"guided_choice", "[\"a\"]", Kind::choice},
                         {"guided_grammar", "\"a\"", Kind::ebnf},
                         {"json_schema", "{}", Kind::json_schema},
                         {"regex", "\"a\"", Kind::regex},
                         {"grammar", "\"a\"", Kind::ebnf},
                         {"ebnf", "\"a\"", Kind::ebnf},
                         {"structured_outputs", R"({"json":{}})", Kind::json_schema},
                         {"structured_outputs", R"({"regex":"a"})", Kind::regex},
                         {"structured_outputs", R"({"choice":["a"]})", Kind::choice},
                         {"structured_outputs", R"({"grammar":"a"})", Kind::ebnf}}) {
    const GenerationRequest request = taken(concat("\"", row.name, "\":", row.value), served);
    ASSERT_TRUE(request.structure) << row.name;
    EXPECT_EQ(request.structure->kind, row.kind) << row.name;
    if (row.kind == Kind::choice)
      EXPECT_EQ(request.structure->choices, std::vector<std::string>{"a"});
    else
      EXPECT_EQ(request.structure->text, row.kind == Kind::json_schema ? "{}" : "a") << row.name;
    EXPECT_TRUE(request.structure_field.starts_with(row.name)) << request.structure_field;
  }
}

TEST(FieldEffects, AMessageThatTheTemplateChangesIsNotContinued) {
  ServedModel louder = testing::served_model();
  louder.chat_template =
      ChatTemplate::compile("{%- for m in messages %}{{- m.content | upper }}{%- endfor %}",
                            "a test")
          .value();
  const auto continued = [](const ServedModel& served) {
    const auto read = parse_generation_request(
        Api::chat,
        R"({"continue_final_message":true,"messages":[{"role":"user","content":"a"},)"
        R"({"role":"assistant","content":"b"}]})",
        served);
    const auto* error = std::get_if<ApiError>(&read);
    return error != nullptr ? concat(error->status, " ", error->message) : std::string();
  };
  EXPECT_EQ(continued(testing::served_model()), "");
  EXPECT_EQ(continued(louder),
            "400 messages[1], the message to continue: expected a text that the chat template of "
            "this model shows whole, found one that it changes");
}

TEST(FieldEffects, PlacesOfTheCacheEndWithACutPrompt) {
  const auto said = [](std::string_view mark) {
    return concat(R"({"role":"user","content":[{"type":"text","text":")", std::string(200, 'u'),
                  "\"", mark, "}]}");
  };
  const std::string turn = said("");
  const std::string marked = said(R"(,"cache_control":{"type":"ephemeral"})");
  const auto places = [&](const std::string& fields) {
    const auto read = parse_generation_request(
        Api::chat,
        concat(R"({"max_tokens":1,"messages":[)", turn, R"(,{"role":"assistant","content":"a"},)",
               marked, R"(,{"role":"assistant","content":"b"},)", turn, "]", fields, "}"),
        testing::served_model());
    return std::get<GenerationRequest>(read);
  };
  const GenerationRequest whole = places("");
  ASSERT_FALSE(whole.cache.boundaries.empty());
  const GenerationRequest cut =
      places(R"(,"truncate_prompt_tokens":300,"truncation_side":"right")");
  EXPECT_EQ(cut.prompts.front().size(), 300U);
  std::vector<int32_t> expected = whole.cache.boundaries;
  std::erase_if(expected, [](int32_t tokens) { return tokens > 300; });
  EXPECT_LT(expected.size(), whole.cache.boundaries.size());
  EXPECT_EQ(cut.cache.boundaries, expected);
  const int32_t pinned = whole.cache.pinned_tokens;
  EXPECT_GT(pinned, 300);
  EXPECT_EQ(cut.cache.pinned_tokens, 300);
  const auto size = static_cast<int32_t>(whole.prompts.front().size());
  EXPECT_EQ(places(R"(,"truncate_prompt_tokens":300)").cache.pinned_tokens, pinned - (size - 300));
}

TEST(FieldEffects, AProfileIsNamedWhoseFilterCannotBeMade) {
  Profiles profiles;
  Profile profile{.name = "strict"};
  profile.filters = {"regex:/nothing/here"};
  profiles.add(std::move(profile));
  FilterStore store{FilterReport()};
  const auto made = make_filters(profiles, store);
  ASSERT_FALSE(made.ok());
  EXPECT_TRUE(made.error().message.starts_with("profile strict: ")) << made.error().message;
}

}  // namespace
}  // namespace nibble
