// Images as they are sent: every form of a part, and every refusal.
#include "server/images/sent_images.h"

#include <gtest/gtest.h>

#include "base/concat.h"

namespace nibble {
namespace {

Json chat_with(const std::string& parts, std::string_view role = "user") {
  return parse_json(concat(R"({"messages":[{"role":"user","content":"a"},{"role":")", role,
                           R"(","content":[)", parts, "]}]}"),
                    "a test")
      .value();
}

struct Form {
  const char* part;
  const char* becomes;
  const char* url;
  ImageDetail detail = ImageDetail::full;
};

TEST(SentImages, EveryFormIsTakenOut) {
  constexpr Form kForms[] = {
      {R"({"type":"image_url","image_url":{"url":"data:;base64,AAAA"}})", R"({"type":"image"})",
       "data:;base64,AAAA"},
      {R"({"type":"image_url","image_url":"u"})", R"({"type":"image"})", "u"},
      {R"({"type":"image_url","image_url":{"url":"u","detail":"low"}})", R"({"type":"image"})", "u",
       ImageDetail::low},
      {R"({"type":"image_url","image_url":{"url":"u","detail":null}})", R"({"type":"image"})", "u"},
      {R"({"type":"image_url","image_url":{"url":"u","detail":"high"}})", R"({"type":"image"})",
       "u"},
      {R"({"type":"input_image","image_url":"u","detail":"low"})", R"({"type":"image"})", "u",
       ImageDetail::low},
      {R"({"type":"input_image","image_url":"u","detail":"auto"})", R"({"type":"image"})", "u"},
      {R"({"type":"image_url","image_url":{"url":"u"},"cache_control":{"type":"ephemeral"}})",
       R"({"type":"image","cache_control":{"type":"ephemeral"}})", "u"},
  };
  for (const Form& form : kForms)
    for (const char* role : {"user", "tool", "system", "assistant"}) {
      const std::string text = R"({"type":"text","text":"b"})";
      Json chat = chat_with(concat(text, ",", form.part), role);
      auto taken = take_images(chat, 1);
      auto* images = std::get_if<std::vector<SentImage>>(&taken);
      ASSERT_NE(images, nullptr) << form.part << ": " << std::get<ApiError>(taken).message;
      ASSERT_EQ(images->size(), 1U);
      EXPECT_EQ(images->front().url, form.url);
      EXPECT_EQ(images->front().detail, form.detail) << form.part;
      EXPECT_EQ(chat, chat_with(concat(text, ",", form.becomes), role));
    }
}

TEST(SentImages, TheirOrderIsTheConversations) {
  Json chat = parse_json(R"({"messages":[
      {"role":"user","content":[{"type":"image_url","image_url":"1"},
                                {"type":"image_url","image_url":"2"}]},
      {"role":"tool","content":[{"type":"image_url","image_url":"3"}]}]})",
                         "a test")
                  .value();
  const auto taken = take_images(chat, 3);
  std::string urls;
  for (const SentImage& image : std::get<std::vector<SentImage>>(taken)) urls += image.url;
  EXPECT_EQ(urls, "123");
}

TEST(SentImages, OtherBodiesAreLeftAlone) {
  for (const char* body : {"{}", R"({"messages":5})", R"({"messages":[5,"x",{"content":{}}]})",
                           R"({"messages":[{"content":"data:image/png;base64,AA=="}]})",
                           R"({"messages":[{"content":[5,"x",{"type":5},{"type":"audio"}]}]})"}) {
    Json chat = parse_json(body, "a test").value();
    const auto taken = take_images(chat, 0);
    ASSERT_NE(std::get_if<std::vector<SentImage>>(&taken), nullptr) << body;
    EXPECT_EQ(chat, parse_json(body, "a test").value());
  }
}

TEST(SentImages, Refusals) {
  constexpr std::pair<const char*, const char*> kRows[] = {
      {R"({"type":"image_url"})", "image 1: expected \"image_url\": {\"url\": \"data:...\"}"},
      {R"({"type":"image_url","image_url":{}})", "image 1: expected"},
      {R"({"type":"image_url","image_url":{"url":5}})", "image 1: expected"},
      {R"({"type":"image_url","image_url":["u"]})", "image 1: expected"},
      {R"({"type":"input_image","file_id":"f"})", "found a file_id; files are not stored here"},
      {R"({"type":"image_url","image_url":{"url":"u","detail":"most"}})",
       "the detail of image 1: expected low, high or auto, found \"most\""},
      {R"({"type":"image_url","image_url":{"url":"u","detail":5}})", "found 5"},
      {R"({"type":"image"})", "a part of type \"image\""},
      {R"({"type":"video","video":"x"})", "a part of type \"video\""},
      {R"({"type":"image_url","image_url":"a"},{"type":"image_url","image_url":"b"},
          {"type":"image_url","image_url":"c"})",
       "images of a request: expected at most 2, found 3; send fewer, or raise "
       "--limit-mm-per-prompt"},
      {R"({"type":"image_url","image_url":"a"},{"type":"input_image"})", "image 2: expected"},
  };
  for (const auto& [parts, says] : kRows) {
    Json chat = chat_with(parts);
    const auto taken = take_images(chat, 2);
    const auto* error = std::get_if<ApiError>(&taken);
    ASSERT_NE(error, nullptr) << parts;
    EXPECT_EQ(error->status, 400);
    EXPECT_EQ(error->param, "messages");
    EXPECT_NE(error->message.find(says), std::string::npos) << error->message;
    EXPECT_EQ(error->message.find('\n'), std::string::npos);
  }
}

TEST(ImagePlaces, BySchemeInAnyCase) {
  EXPECT_EQ(place_of_image("data:image/png;base64,AA=="), ImagePlace::inside);
  EXPECT_EQ(place_of_image("DATA:,"), ImagePlace::inside);
  EXPECT_EQ(place_of_image("https://a/b.png"), ImagePlace::remote);
  EXPECT_EQ(place_of_image("HTTP://a"), ImagePlace::remote);
  for (const char* other :
       {"", "file:///etc/passwd", "ftp://a", "iVBORw0KGgo=", "/etc/passwd", "https:a", " data:,"})
    EXPECT_EQ(place_of_image(other), ImagePlace::other) << other;
}

}  // namespace
}  // namespace nibble
