// Prompts with videos are those of transformers (tools/oracle/video_prompts.py), with scripts in
// the place of ffprobe and ffmpeg: only number, rate and size of frames matter to a prompt.
#include <gtest/gtest.h>

#include "base/file.h"
#include "media/testing/fake_programs.h"
#include "server/request/generation_request.h"
#include "server/testing/test_images.h"
#include "testing/source_dir.h"

namespace nibble {
namespace {

std::string read(std::string_view path) {
  const auto text = read_text_file(concat(NIBBLE_SOURCE_DIR, "/", path), 8 << 20);
  CHECK(text.ok(), text.error().message);
  return text.value();
}

/// A script that does for each file what `answer` says of its facts; files are told apart by the
/// name that their bytes end with.
std::string by_file(const Json& files, std::string (*answer)(const Json& facts)) {
  std::string script = "case \"$(tail -c 16 /proc/self/fd/0 | tr -d '\\0')\" in";
  for (const Json::Member& file : files.as_object())
    script += concat(" *' ", file.key, "') ", answer(file.value), " ;;");
  return script + " *) exit 9 ;; esac";
}

std::string probe_of(const Json& facts) {
  const auto number = [&](const char* key) { return facts.find(key)->as_double(); };
  return echoing(probe_answer(concat(
      R"("width":)", number("width"), R"(,"height":)", number("height"), R"(,"avg_frame_rate":")",
      facts.find("fps")->dump(), R"(/1","nb_read_packets":")", number("frames"), "\"")));
}

/// A command that writes as many frames as the filter selects.
std::string frames_of(const Json& facts) {
  const auto edge = [&](const char* key) { return facts.find(key)->as_int(); };
  return concat("for i in $(echo \"$*\" | grep -o 'eq('); do printf 'P6\\n", edge("width"), " ",
                edge("height"), "\\n255\\n'; head -c ", 3 * edge("width") * edge("height"),
                " /dev/zero; done");
}

ServedModel pebble(const FakePrograms& programs) {
  const std::string folder = concat(NIBBLE_SOURCE_DIR, "/pebble/model");
  ServedModel model{.tokenizer = Tokenizer::parse(read("pebble/model/tokenizer.json"),
                                                  read("pebble/model/tokenizer_config.json"),
                                                  "tokenizer.json")
                                     .value()};
  model.chat_template =
      ChatTemplate::compile(read("pebble/model/chat_template.jinja"), "pebble").value();
  model.context_max = 4096;
  model.vocab_rows = 4096;
  ImageIntakeOptions options;
  options.processor = load_image_processor(folder).value().value();
  options.videos.processor = load_video_processor(folder).value().value();
  options.videos.videos_max = 4;
  options.videos.decoder = std::make_shared<const VideoDecoder>(programs.decoder());
  options.image_token = model.tokenizer.token_to_id("<|image_pad|>").value();
  options.video_token = model.tokenizer.token_to_id("<|video_pad|>").value();
  model.images = std::make_shared<const ImageIntake>(options);
  return model;
}

/// A golden's part as clients send it.
Json sent(const Json& part) {
  const std::string& type = part.find("type")->as_string();
  const auto with_url = [](const char* kind, const std::string& url) {
    return json_object({{"type", Json(kind)}, {kind, json_object({{"url", Json(url)}})}});
  };
  if (type == "video")
    return with_url("video_url",
                    "data:;base64," + testing::base64_of(
                                          concat(fake_mp4(), " ", part.find("file")->as_string())));
  if (type == "text") return part;
  const Json::Array& size = part.find("size")->as_array();
  return with_url("image_url",
                  testing::data_url(testing::png(static_cast<uint32_t>(size[0].as_int()),
                                                 static_cast<uint32_t>(size[1].as_int()))));
}

TEST(VideoPrompts, AreThoseOfTransformers) {
  const Json golden =
      parse_json(read("tests/golden/media/video_prompts.json"), "the golden").value();
  const Json& files = *golden.find("files");
  const FakePrograms programs(by_file(files, probe_of), by_file(files, frames_of));
  const ServedModel model = pebble(programs);
  ASSERT_GE(golden.find("cases")->as_array().size(), 8U);
  for (const Json& c : golden.find("cases")->as_array()) {
    SCOPED_TRACE(c.find("messages")->dump());
    Json messages = *c.find("messages");
    for (Json& message : messages.as_array())
      if (Json* content = message.find("content"); content->is_array())
        for (Json& part : content->as_array()) part = sent(part);
    const Json body =
        json_object({{"messages", messages}, {"mm_processor_kwargs", *c.find("fields")}});
    const auto parsed = parse_generation_request(Api::chat, body.dump(), model);
    if (const auto* error = std::get_if<ApiError>(&parsed)) {
      ADD_FAILURE() << error->message;
      continue;
    }
    const auto& request = std::get<GenerationRequest>(parsed);
    std::vector<int32_t> expected;
    for (const Json& run : c.find("runs")->as_array())
      expected.insert(expected.end(), static_cast<size_t>(run.as_array()[1].as_int()),
                      static_cast<int32_t>(run.as_array()[0].as_int()));
    EXPECT_EQ(request.prompts.front(), expected);
    // Every token that stands for media is filled by its rows, and no other one.
    const ImageIntakeOptions& options = model.images->options();
    size_t filled = 0, standing = 0;
    for (const MediaRows& media : request.media) filled += static_cast<size_t>(media.span.count);
    for (const int32_t id : request.prompts.front())
      standing += id == options.image_token || id == options.video_token;
    EXPECT_EQ(filled, standing);
  }
}

}  // namespace
}  // namespace nibble
