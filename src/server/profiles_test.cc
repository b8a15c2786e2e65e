// Which names stand for what, and who wins.
#include "server/profiles.h"

#include <gtest/gtest.h>

#include "server/test_model.h"

namespace nibble {
namespace {

TEST(Profiles, AreFoundUnderTheirNames) {
  const std::vector<std::string> names = {"tiny", "a:b"};
  const auto found = [&](const char* model) {
    const Profile* profile = profile_of(model, names);
    return profile != nullptr ? std::string(profile->name) : "";
  };
  EXPECT_EQ(found("tiny"), "");
  EXPECT_EQ(found("a:b"), "");
  EXPECT_EQ(found("thinking-coding"), "thinking-coding");
  EXPECT_EQ(found("tiny:thinking-coding"), "thinking-coding");
  EXPECT_EQ(found("a:b:instruct-creative"), "instruct-creative");
  EXPECT_EQ(found("other:thinking-coding"), "");
  EXPECT_EQ(found("tiny:fast"), "");
  EXPECT_EQ(found(":thinking-coding"), "");
  EXPECT_EQ(servable_names(names).size(), 2U + 2 * built_in_profiles().size());
}

GenerationRequest parsed(Api api, const std::string& body) {
  static const ServedModel model = testing::served_model();
  auto request = parse_generation_request(api, body, model);
  CHECK(std::holds_alternative<GenerationRequest>(request), std::get<ApiError>(request).message);
  return std::get<GenerationRequest>(std::move(request));
}

bool thinks(const GenerationRequest& request) {
  static const ServedModel model = testing::served_model();
  return start_of(model, request.prompts.front()) == StartIn::reasoning;
}

TEST(Profiles, FillWhatARequestDoesNotSay) {
  const std::string hi = R"("messages":[{"role":"user","content":"hi"}],"max_tokens":9,)";
  const auto coding = parsed(Api::chat, concat("{", hi, R"("model":"tiny:thinking-coding"})"));
  EXPECT_EQ(coding.sampling.temperature, 0.6);
  EXPECT_EQ(coding.sampling.top_k, 20);
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
  EXPECT_TRUE(thinks(parsed(Api::messages, concat("{", hi, R"("model":"thinking-general"})"))));
  EXPECT_FALSE(thinks(parsed(Api::messages, concat("{", hi, R"("model":"instruct-general"})"))));
  EXPECT_FALSE(thinks(parsed(Api::responses, R"({"input":"hi","model":"instruct-creative"})")));
  EXPECT_EQ(
      parsed(Api::completions, R"({"prompt":"x","model":"instruct-creative"})").sampling.top_k, 40);
}

}  // namespace
}  // namespace nibble
