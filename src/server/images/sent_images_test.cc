// Images and videos as they are sent: every form of a part, and every refusal.
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
      auto taken = take_media(chat, {.images = 1});
      auto* media = std::get_if<SentMedia>(&taken);
      ASSERT_NE(media, nullptr) << form.part << ": " << std::get<ApiError>(taken).message;
      ASSERT_EQ(media->images.size(), 1U);
      EXPECT_TRUE(media->videos.empty());
      EXPECT_EQ(media->images.front().url, form.url);
      EXPECT_EQ(media->images.front().detail, form.detail) << form.part;
      EXPECT_EQ(chat, chat_with(concat(text, ",", form.becomes), role));
    }
}

struct VideoForm {
  const char* part;
  const char* url;
  std::vector<std::string> frames;
  std::optional<double> fps;
};

TEST(SentVideos, EveryFormIsTakenOut) {
  const VideoForm kForms[] = {
      {R"({"type":"video_url","video_url":{"url":"data:video/mp4;base64,AAAA"}})",
       "data:video/mp4;base64,AAAA",
       {},
       {}},
      {R"({"type":"video_url","video_url":"u","fps":0.5})", "u", {}, 0.5},
      {R"({"type":"video_url","video_url":"u","fps":null})", "u", {}, {}},
      {R"({"type":"video","video":"u"})", "u", {}, {}},
      {R"({"type":"video","video":["a","b"],"fps":1000})", "", {"a", "b"}, 1000},
      {R"({"type":"video","video":["a"],"fps":0.001})", "", {"a"}, 0.001},
      {R"({"type":"video_url","video_url":{"url":"DATA:video/jpeg;base64,AA,B,"}})",
       "",
       {"DATA:video/jpeg;base64,AA", "DATA:video/jpeg;base64,B", "DATA:video/jpeg;base64,"},
       {}},
      {R"({"type":"video_url","video_url":"data:video/jpeg;base64,A"})",
       "",
       {"data:video/jpeg;base64,A"},
       {}},
      // No list: each frame would have a copy of all that stands before the first comma.
      {R"({"type":"video_url","video_url":"data:video/jpeg;x;base64,A,B"})",
       "data:video/jpeg;x;base64,A,B",
       {},
       {}}};
  for (const VideoForm& form : kForms) {
    Json chat = chat_with(form.part, "tool");
    auto taken = take_media(chat, {.images = 0, .videos = 1, .frames = 3});
    auto* media = std::get_if<SentMedia>(&taken);
    ASSERT_NE(media, nullptr) << form.part << ": " << std::get<ApiError>(taken).message;
    ASSERT_EQ(media->videos.size(), 1U);
    EXPECT_EQ(media->videos.front().url, form.url);
    EXPECT_EQ(media->videos.front().frames, form.frames) << form.part;
    EXPECT_EQ(media->videos.front().fps, form.fps) << form.part;
    EXPECT_EQ(chat, chat_with(R"({"type":"video"})", "tool"));
  }
}

TEST(SentImages, TheirOrderIsTheConversations) {
  Json chat = parse_json(R"({"messages":[
      {"role":"user","content":[{"type":"image_url","image_url":"1"},
                                {"type":"video_url","video_url":"v"},
                                {"type":"image_url","image_url":"2"}]},
      {"role":"tool","content":[{"type":"image_url","image_url":"3"}]}]})",
                         "a test")
                  .value();
  const auto taken = take_media(chat, {.images = 3, .videos = 1});
  std::string urls;
  for (const SentImage& image : std::get<SentMedia>(taken).images) urls += image.url;
  EXPECT_EQ(urls, "123");
  ASSERT_EQ(std::get<SentMedia>(taken).videos.size(), 1U);
  EXPECT_EQ(std::get<SentMedia>(taken).videos.front().url, "v");
}

TEST(SentImages, OtherBodiesAreLeftAlone) {
  for (const char* body : {"{}", R"({"messages":5})", R"({"messages":[5,"x",{"content":{}}]})",
                           R"({"messages":[{"content":"data:image/png;base64,AA=="}]})",
                           R"({"messages":[{"content":[5,"x",{"type":5},{"type":"audio"}]}]})"}) {
    Json chat = parse_json(body, "a test").value();
    const auto taken = take_media(chat, {});
    ASSERT_NE(std::get_if<SentMedia>(&taken), nullptr) << body;
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
      {R"({"type":"video"})", "a part of type \"video\": expected {\"type\": \"video_url\""},
      {R"({"type":"video_url"})", "video 1: expected \"video_url\": {\"url\": \"data:...\"}"},
      {R"({"type":"video_url","video_url":{"url":7}})", "video 1: expected"},
      {R"({"type":"video","video":[]})", "video 1: expected"},
      {R"({"type":"video","video":["u",7]})", "found another form"},
      {R"({"type":"video","video":["u","u","u","u"]})",
       "frames of video 1: expected at most 3, found 4; send fewer, or raise --max-video-frames"},
      {R"({"type":"video_url","video_url":"data:video/jpeg;base64,A,B,C,D"})",
       "frames of video 1: expected at most 3, found 4"},
      {R"({"type":"video_url","video_url":"u","fps":0})",
       "the fps of video 1: expected a number from 0.001 to 1000, found 0"},
      {R"({"type":"video_url","video_url":"u","fps":0.0009})", "found 0.0009"},
      {R"({"type":"video_url","video_url":"u","fps":1001})", "found 1001"},
      {R"({"type":"video_url","video_url":"u","fps":"2"})", "the fps of video 1"},
      {R"({"type":"video_url","video_url":"a"},{"type":"video_url","video_url":"b"})",
       "videos of a request: expected at most 1, found 2; send fewer, or raise "
       "--limit-mm-per-prompt"},
      {R"({"type":"image_url","image_url":"a"},{"type":"image_url","image_url":"b"},
          {"type":"image_url","image_url":"c"})",
       "images of a request: expected at most 2, found 3; send fewer, or raise "
       "--limit-mm-per-prompt"},
      {R"({"type":"image_url","image_url":"a"},{"type":"input_image"})", "image 2: expected"},
  };
  for (const auto& [parts, says] : kRows) {
    Json chat = chat_with(parts);
    const auto taken = take_media(chat, {.images = 2, .videos = 1, .frames = 3});
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
