// Tests which names stand for what, and which setting wins.
#include "server/request/profiles.h"

#include <gtest/gtest.h>

#include "server/request/generation_request.h"
#include "server/testing/test_model.h"

namespace nibble {
namespace {

TEST(Profiles, AreFoundUnderTheirNames) {
  const std::vector<std::string> names = {"tiny", "a:b"};
  const Profiles profiles;
  const auto found = [&](const char* model) {
    const Profile* profile = profile_of(model, names, profiles);
    return profile != nullptr ? profile->name : "";
  };
  EXPECT_EQ(found("tiny"), "");
  EXPECT_EQ(found("a:b"), "");
  EXPECT_EQ(found("thinking-coding"), "thinking-coding");
  EXPECT_EQ(found("tiny:thinking-coding"), "thinking-coding");
  EXPECT_EQ(found("a:b:instruct-creative"), "instruct-creative");
  EXPECT_EQ(found("a:b:instruct"), "instruct");
  EXPECT_EQ(found("other:thinking-coding"), "");
  EXPECT_EQ(found("tiny:fast"), "");
  EXPECT_EQ(found(":thinking-coding"), "");
  const auto listed = listed_names(names, profiles, ProfileListing::on);
  EXPECT_EQ(listed.size(), 2U + profiles.all().size());
  EXPECT_EQ(listed[0], names[0]);
  EXPECT_EQ(listed[2], concat(names[0], ":", profiles.all()[0].name));
  EXPECT_EQ(listed_names(names, profiles, ProfileListing::off), names);
  const std::vector<std::string> unlisted = {"/models/tiny", "/models/tiny:x"};
  EXPECT_EQ(shown_name("/models/tiny", names, unlisted), names[0]);
  EXPECT_EQ(shown_name("/models/tiny:thinking", names, unlisted), concat(names[0], ":thinking"));
  EXPECT_EQ(shown_name("/models/tinier", names, unlisted), "/models/tinier");
  EXPECT_EQ(shown_name("thinking", names, unlisted), "thinking");
}

GenerationRequest parsed_by(const ServedModel& model, Api api, const std::string& body) {
  auto request = parse_generation_request(api, body, model);
  CHECK(std::holds_alternative<GenerationRequest>(request), std::get<ApiError>(request).message);
  return std::get<GenerationRequest>(std::move(request));
}

GenerationRequest parsed(Api api, const std::string& body) {
  static const ServedModel model = testing::served_model();
  return parsed_by(model, api, body);
}

bool thinks(const GenerationRequest& request) {
  static const ServedModel model = testing::served_model();
  return start_of(model, request.prompts.front()) == StartIn::reasoning;
}

constexpr auto kHi = R"("messages":[{"role":"user","content":"hi"}],"max_tokens":9,)";

TEST(Profiles, FillWhatARequestDoesNotSay) {
  const std::string hi = kHi;
  const auto coding = parsed(Api::chat, concat("{", hi, R"("model":"tiny:thinking-coding"})"));
  EXPECT_EQ(coding.sampling.temperature, 0.6);
  EXPECT_EQ(coding.sampling.top_k, 20);
  EXPECT_EQ(coding.profile, "thinking-coding");
  EXPECT_TRUE(thinks(coding));
  const auto instruct = parsed(
      Api::chat, concat("{", hi, R"("model":"instruct-general","temperature":0.1,"top_k":null})"));
  EXPECT_EQ(instruct.sampling.temperature, 0.1);
  EXPECT_EQ(instruct.sampling.top_k, 20);
  EXPECT_EQ(instruct.sampling.presence_penalty, 1.5);
  EXPECT_FALSE(thinks(instruct));
  EXPECT_TRUE(thinks(parsed(Api::chat, concat("{", hi,
                                              R"("model":"instruct-general",)"
                                              R"("enable_thinking":true})"))));
  const auto message = parsed(Api::messages, concat("{", hi, R"("model":"thinking-general"})"));
  EXPECT_TRUE(thinks(message));
  EXPECT_EQ(message.sampling.presence_penalty, 1.5);
  EXPECT_FALSE(thinks(parsed(Api::messages, concat("{", hi, R"("model":"instruct-general"})"))));
  const auto response = parsed(Api::responses, R"({"input":"hi","model":"instruct-general"})");
  EXPECT_FALSE(thinks(response));
  EXPECT_EQ(*response.echoed.find("temperature"), Json(0.7));
  EXPECT_EQ(
      parsed(Api::completions, R"({"prompt":"x","model":"instruct-creative"})").sampling.top_k, 40);
}

TEST(Profiles, TheSwitchesSwitchThinkingAndNothingElse) {
  const std::string hi = kHi;
  for (const Api api : {Api::chat, Api::messages}) {
    EXPECT_TRUE(thinks(parsed(api, concat("{", hi, R"("model":"tiny:thinking"})"))));
    EXPECT_FALSE(thinks(parsed(api, concat("{", hi, R"("model":"tiny:instruct"})"))));
  }
  EXPECT_EQ(parsed(Api::chat, concat("{", hi, R"("model":"instruct"})")).sampling.top_k, 0);
}

/// A model with the profile `strict`, which says everything and locks `locked`.
ServedModel with_profile(std::vector<std::string> locked) {
  ServedModel model = testing::served_model();
  model.profiles.add({.name = "strict",
                      .numbers = json_object({{"temperature", Json(0.25)},
                                              {"max_tokens", Json(50)},
                                              {"thinking_budget", Json(20)},
                                              {"priority", Json(7)}}),
                      .thinking = false,
                      .template_kwargs = json_object({{"style", Json("brief")}}),
                      .locked = std::move(locked)});
  return model;
}

TEST(Profiles, LimitsAreDefaultsUnlessLocked) {
  const ServedModel open = with_profile({});
  const std::string start = R"({"messages":[{"role":"user","content":"hi"}],"model":"strict")";
  const auto plain = parsed_by(open, Api::chat, start + "}");
  EXPECT_EQ(plain.max_tokens, 50);
  EXPECT_EQ(plain.thinking_budget, 20);
  EXPECT_EQ(plain.priority, 7);
  const std::string more = R"(,"max_tokens":60,"thinking_budget":30,"service_tier":"flex"})";
  const auto said = parsed_by(open, Api::chat, start + more);
  EXPECT_EQ(said.max_tokens, 60);
  EXPECT_EQ(said.thinking_budget, 30);
  EXPECT_EQ(said.priority, 100);
  const ServedModel closed = with_profile({"max_tokens", "thinking_budget", "priority"});
  const auto bound = parsed_by(closed, Api::chat, start + more);
  EXPECT_EQ(bound.max_tokens, 50);
  EXPECT_EQ(bound.thinking_budget, 20);
  EXPECT_EQ(bound.priority, 7);
  const auto below =
      parsed_by(closed, Api::chat, start + R"(,"max_tokens":10,"reasoning_budget":3})");
  EXPECT_EQ(below.max_tokens, 10);
  EXPECT_EQ(below.thinking_budget, 3);
  const auto none = parsed_by(closed, Api::chat, start + R"(,"reasoning_budget":-1})");
  EXPECT_EQ(none.thinking_budget, 20);
}

TEST(Profiles, ALimitBeyondTheContextGivesWay) {
  ServedModel model = with_profile({"max_tokens"});
  model.context_max = 30;
  const auto request = parsed_by(model, Api::completions, R"({"prompt":"four","model":"strict"})");
  EXPECT_EQ(request.max_tokens, 26);
}

TEST(Profiles, WhatIsLockedHoldsAgainstTheRequest) {
  const ServedModel open = with_profile({});
  const ServedModel closed = with_profile({"temperature", "thinking", "template_kwargs"});
  const struct {
    Api api;
    const char* fields;
  } cases[] = {
      {Api::chat, R"("enable_thinking":true)"},
      {Api::chat, R"("chat_template_kwargs":{"enable_thinking":true})"},
      {Api::messages, R"("thinking":{"type":"enabled","budget_tokens":1024})"},
  };
  for (const auto& row : cases) {
    const std::string body =
        concat("{", kHi, R"("model":"strict","temperature":0.9,)", row.fields, "}");
    EXPECT_TRUE(thinks(parsed_by(open, row.api, body))) << body;
    EXPECT_FALSE(thinks(parsed_by(closed, row.api, body))) << body;
    EXPECT_EQ(parsed_by(open, row.api, body).sampling.temperature, 0.9) << body;
    EXPECT_EQ(parsed_by(closed, row.api, body).sampling.temperature, 0.25) << body;
  }
  Json body = parse_json(R"({"chat_template_kwargs":{"style":"long","a":1}})", "x").value();
  Json other = body;
  apply_profile(*open.profiles.find("strict"), SaysThinking::no, body);
  EXPECT_EQ(body.find("chat_template_kwargs")->dump(), R"({"style":"long","a":1})");
  apply_profile(*closed.profiles.find("strict"), SaysThinking::no, other);
  EXPECT_EQ(other.find("chat_template_kwargs")->dump(), R"({"style":"brief","a":1})");
}

TEST(Profiles, TheDefaultHoldsWhereNoneIsNamed) {
  ServedModel model = with_profile({});
  model.profiles.set_default("strict");
  const auto temperature = [&](const char* named) {
    return parsed_by(model, Api::chat, concat("{", kHi, named, R"("n":1})")).sampling.temperature;
  };
  EXPECT_EQ(temperature(""), 0.25);
  EXPECT_EQ(temperature(R"("model":"alias",)"), 0.25);
  EXPECT_EQ(temperature(R"("model":"thinking-coding",)"), 0.6);
  const auto unknown =
      parse_generation_request(Api::chat, concat("{", kHi, R"("model":"gpt-9"})"), model);
  EXPECT_EQ(std::get<ApiError>(unknown).status, 404);
}

}  // namespace
}  // namespace nibble
