// Requests with images, from body to tokens and patches: the same prompt in every API, every limit
// at its bound, every refusal one line without the image's bytes.
#include <gtest/gtest.h>

#include <algorithm>

#include "server/routes/text_routes.h"
#include "server/testing/media_requests.h"

namespace nibble {
namespace {

using testing::accept;
using testing::base64_of;
using testing::chat;
using testing::data_url;
using testing::image_options;
using testing::image_part;
using testing::kImagePad;
using testing::kVisionEnd;
using testing::kVisionStart;
using testing::model_with_images;
using testing::png;
using testing::refusal;
using testing::text_part;

const ServedModel& model() { return testing::media_model(); }

std::vector<int32_t> tokens_of(const std::string& text, const ServedModel& served = model()) {
  return served.tokenizer.encode(text, SpecialTokens::recognised).value();
}

TEST(ImageRequest, PlaceholdersAndPatchesOfSeveralImages) {
  // 64 x 96 is 2 x 3 tokens, 32 x 32 one.
  const GenerationRequest request =
      accept(Api::chat, chat(concat(text_part("a"), ",", image_part(data_url(png(64, 96))), ",",
                                    text_part("b"), ",", image_part(data_url(png(32, 32, 7))))));
  std::string six;
  for (int i = 0; i < 6; ++i) six += "<|image_pad|>";
  EXPECT_EQ(request.prompts.front(),
            tokens_of(concat("<|im_start|>user\na<|vision_start|>", six,
                             "<|vision_end|>b<|vision_start|><|image_pad|><|vision_end|>",
                             "<|im_end|>\n<|im_start|>assistant\n<think>\n")));
  ASSERT_EQ(request.media.size(), 2U);
  const auto& first = request.media[0];
  const auto& second = request.media[1];
  EXPECT_EQ(request.prompts.front()[static_cast<size_t>(first.span.begin)], kImagePad);
  EXPECT_EQ(request.prompts.front()[static_cast<size_t>(first.span.begin) - 1], kVisionStart);
  EXPECT_EQ(request.prompts.front()[static_cast<size_t>(first.span.begin) + 6], kVisionEnd);
  EXPECT_EQ(first.span.count, 6);
  EXPECT_EQ(second.span.begin, first.span.begin + 9);
  EXPECT_EQ(second.span.count, 1);
  EXPECT_NE(first.span.digest, second.span.digest);
  ASSERT_TRUE(first.patches && second.patches);
  EXPECT_EQ(first.patches->grid, (MediaGrid{1, 6, 4}));
  const VisionConfig vision{.hidden = 8, .patch = 16, .temporal_patch = 2, .merge = 2};
  EXPECT_TRUE(check_patches(*first.patches, vision, 6).ok());
  EXPECT_TRUE(check_patches(*second.patches, vision, 1).ok());
  EXPECT_TRUE(std::ranges::all_of(first.patches->levels, [](uint8_t l) { return l == 128; }));
  EXPECT_TRUE(std::ranges::all_of(second.patches->levels, [](uint8_t l) { return l == 7; }));
  const SequenceRequest sequence = request.sequence(model(), 0, 1);
  ASSERT_EQ(sequence.media.size(), 2U);
  EXPECT_EQ(sequence.media[0].patches, first.patches);
}

TEST(ImageRequest, EqualImagesHaveEqualDigestsAndOthersDoNot) {
  const auto digest = [](uint8_t shade, uint32_t width) {
    return accept(Api::chat, chat(image_part(data_url(png(width, 64, shade)))))
        .media.front()
        .span.digest;
  };
  EXPECT_EQ(digest(9, 64), digest(9, 64));
  EXPECT_NE(digest(9, 64), digest(10, 64));
  EXPECT_NE(digest(9, 64), digest(9, 96));
}

TEST(ImageRequest, EveryApiMakesTheSamePrompt) {
  const std::string image = base64_of(png(64, 96));
  const std::string url = concat("data:image/png;base64,", image);
  const std::string source =
      concat(R"({"type":"image","source":{"type":"base64","media_type":"image/png","data":")",
             image, "\"}}");
  const std::string input = concat(R"({"type":"input_image","image_url":")", url, "\"}");
  const std::string think = R"(,"enable_thinking":false)";
  const auto asked = accept(Api::chat, chat(concat(text_part("see"), ",", image_part(url)), think));
  const auto messages =
      accept(Api::messages, concat(R"({"max_tokens":9,"messages":[{"role":"user","content":[)",
                                   text_part("see"), ",", source, "]}]}"));
  const auto responses = accept(
      Api::responses,
      concat(R"({"enable_thinking":false,"input":[{"role":"user","content":[{"type":"input_text",)",
             R"("text":"see"},)", input, "]}]}"));
  EXPECT_EQ(messages.prompts, asked.prompts);
  EXPECT_EQ(responses.prompts, asked.prompts);
  ASSERT_EQ(messages.media.size(), 1U);
  EXPECT_EQ(messages.media[0].span.digest, asked.media[0].span.digest);
  EXPECT_EQ(responses.media[0].span.digest, asked.media[0].span.digest);
}

TEST(ImageRequest, ResultsOfToolsMayHoldImages) {
  const std::string image = base64_of(png(64, 96));
  const std::string url = concat("data:image/png;base64,", image);
  const auto asked = accept(
      Api::chat, concat(R"({"enable_thinking":false,"messages":[{"role":"user","content":"look"},
          {"role":"assistant","content":"","tool_calls":[{"id":"t","type":"function",
           "function":{"name":"f","arguments":"{}"}}]},
          {"role":"tool","tool_call_id":"t","content":[)",
                        text_part("shot"), ",", image_part(url), "]}]}"));
  const auto messages = accept(
      Api::messages,
      concat(R"({"max_tokens":9,"messages":[{"role":"user","content":"look"},{"role":"assistant",
          "content":[{"type":"tool_use","id":"t","name":"f","input":{}}]},{"role":"user",
          "content":[{"type":"tool_result","tool_use_id":"t","content":[)",
             text_part("shot"), R"(,{"type":"image","source":{"type":"base64","data":")", image,
             "\"}}]}]}]}"));
  const auto responses = accept(
      Api::responses, concat(R"({"enable_thinking":false,"input":[{"role":"user","content":"look"},
          {"type":"function_call","call_id":"t","name":"f","arguments":"{}"},
          {"type":"function_call_output","call_id":"t","output":[{"type":"input_text",
           "text":"shot"},{"type":"input_image","image_url":")",
                             url, "\"}]}]}"));
  ASSERT_EQ(asked.media.size(), 1U);
  EXPECT_EQ(messages.prompts, asked.prompts);
  EXPECT_EQ(responses.prompts, asked.prompts);
  EXPECT_EQ(messages.media.size(), 1U);
  EXPECT_EQ(responses.media.size(), 1U);
  const std::string text = model().tokenizer.decode(asked.prompts.front(), SkipSpecial::no);
  EXPECT_NE(text.find("<tool_response>\nshot<|vision_start|>"), std::string::npos) << text;
}

TEST(ImageRequest, PlaceholdersThatAUserTypesStayText) {
  const std::string typed = text_part("<|vision_start|><|image_pad|><|vision_end|><|video_pad|>");
  const auto alone = accept(Api::chat, chat(typed));
  EXPECT_EQ(std::ranges::count(alone.prompts.front(), kImagePad), 0);
  EXPECT_TRUE(alone.media.empty());
  const auto beside = accept(Api::chat, chat(typed + "," + image_part(data_url(png(32, 32)))));
  EXPECT_EQ(std::ranges::count(beside.prompts.front(), kImagePad), 1);
  EXPECT_EQ(beside.media.size(), 1U);
}

TEST(ImageRequest, AsManyPlacesAsImages) {
  // The family's template takes these for images, though none came.
  for (const char* part : {R"({"type":"text","text":"x","image":"y"})",
                           R"({"type":"text","text":"x","image_url":"y"})"})
    EXPECT_NE(refusal(Api::chat, chat(part)).find("a place for each of 0 images, found 1"),
              std::string::npos);
  for (const char* part : {R"({"type":"text","text":"x","video":"y"})",
                           R"({"type":"text","text":"x","video":"y"},{"type":"text","text":"z"})"})
    EXPECT_NE(refusal(Api::chat, chat(part)).find("a place for each of 0 videos, found 1"),
              std::string::npos);
  EXPECT_NE(refusal(Api::chat, chat(R"({"type":"image"})")).find("part of type \"image\""),
            std::string::npos);
  // One that shows none.
  ServedModel blind = model_with_images();
  blind.chat_template = ChatTemplate::compile("{{ messages[0].role }}", "blind").value();
  EXPECT_NE(refusal(Api::chat, chat(image_part(data_url(png(32, 32)))), blind)
                .find("a place for each of 1 images, found 0"),
            std::string::npos);
  for (const std::string body : {R"({"prompt":[65,264]})", R"({"prompt":[[65],[265]]})"})
    EXPECT_NE(refusal(Api::completions, body).find("no token that stands for an image"),
              std::string::npos);
}

TEST(ImageRequest, PicturesAreNumberedWhereAsked) {
  const std::string image = image_part(data_url(png(32, 32)));
  const auto request = accept(
      Api::chat, chat(image + "," + image, R"(,"chat_template_kwargs":{"add_vision_id":true})"));
  const std::string text = model().tokenizer.decode(request.prompts.front(), SkipSpecial::no);
  EXPECT_NE(text.find("Picture 1: <|vision_start|>"), std::string::npos) << text;
  EXPECT_NE(text.find("Picture 2: <|vision_start|>"), std::string::npos) << text;
}

TEST(ImageRequest, SystemMessagesHaveNone) {
  const std::string image = image_part(data_url(png(32, 32)));
  for (const char* role : {"system", "developer"})
    for (const char* before : {"", R"({"role":"system","content":"be brief"},)"}) {
      const std::string why = refusal(
          Api::chat, concat(R"({"messages":[)", before, R"({"role":")", role, R"(","content":[)",
                            image, R"(]},{"role":"user","content":"hi"}]})"));
      EXPECT_NE(why.find("System message cannot contain images"), std::string::npos) << why;
    }
  const std::string why =
      refusal(Api::messages, R"({"max_tokens":1,"system":[{"type":"image","source":{}}],
                         "messages":[{"role":"user","content":"hi"}]})");
  EXPECT_NE(why.find("system: a block of this type"), std::string::npos) << why;
}

TEST(ImageRequest, DetailAndBoundsOnPixels) {
  const auto tokens = [](const std::string& url_fields, const std::string& fields = "") {
    const std::string part = concat(R"({"type":"image_url","image_url":{"url":")",
                                    data_url(png(1024, 768)), "\"", url_fields, "}}");
    return accept(Api::chat, chat(part, fields)).media.front().span.count;
  };
  EXPECT_EQ(tokens(""), 32 * 24);
  EXPECT_EQ(tokens(R"(,"detail":"high")"), 32 * 24);
  EXPECT_EQ(tokens(R"(,"detail":"low")"), 18 * 13);  // at most 512 x 512 pixels
  EXPECT_EQ(tokens("", R"(,"mm_processor_kwargs":{"max_pixels":65536})"), 9 * 6);
  EXPECT_EQ(tokens(R"(,"detail":"low")", R"(,"mm_processor_kwargs":{"max_pixels":65536})"), 9 * 6);
  // Rounded up it would be 37 x 28 tokens, more than the server's 1,024.
  EXPECT_EQ(tokens("", R"(,"mm_processor_kwargs":{"min_pixels":1000000})"), 36 * 27);
  EXPECT_EQ(tokens("", R"(,"mm_processor_kwargs":{"min_pixels":900000})"), 35 * 26);
  // Settings of videos are passed over where there are none, whatever they say.
  EXPECT_EQ(tokens("", R"(,"mm_processor_kwargs":{"fps":-1,"max_pixels":65536})"), 9 * 6);
  for (const char* wrong : {R"({"max_pixels":1048577})", R"({"max_pixels":0})",
                            R"({"max_pixels":"many"})", R"({"pixels":1})", "5"}) {
    const auto parsed = parse_generation_request(
        Api::chat, chat(text_part("a"), concat(R"(,"mm_processor_kwargs":)", wrong)), model());
    const auto* error = std::get_if<ApiError>(&parsed);
    ASSERT_NE(error, nullptr) << wrong;
    EXPECT_EQ(error->param, "mm_processor_kwargs");
    EXPECT_EQ(error->status, 400);
  }
}

/// A limit of requests, and a request that uses so much of it.
struct Limit {
  const char* what;
  const char* says;  // by the refusal of more
  int64_t bound;
  void (*set)(ImageIntakeOptions& options, int64_t bound);
  std::string (*parts)(int64_t used);
};

const Limit kLimits[] = {
    {"images", "at most 3,", 3,
     [](ImageIntakeOptions& o, int64_t b) { o.images_max = static_cast<size_t>(b); },
     [](int64_t n) {
       std::string parts;
       for (int64_t i = 0; i < n; ++i)
         parts += concat(i > 0 ? "," : "", image_part(data_url(png(32, 32))));
       return parts;
     }},
    {"encoded bytes", "at most 4000 bytes", 4000,
     [](ImageIntakeOptions& o, int64_t b) { o.limits.encoded_bytes_max = static_cast<size_t>(b); },
     [](int64_t n) {  // bytes after the end of a PNG are no part of it
       std::string file = png(32, 32);
       file.resize(static_cast<size_t>(n));
       return image_part(data_url(file));
     }},
    {"pixels", "at most 2112 pixels", 64 * 33,
     [](ImageIntakeOptions& o, int64_t b) { o.limits.pixels_max = b; },
     [](int64_t n) {
       const int64_t height = n - 64 * 33 + 33;  // steps of a row
       return image_part(data_url(png(64, static_cast<uint32_t>(height))));
     }},
    {"aspect", "a longer edge of at most 5 shorter ones", 5,
     [](ImageIntakeOptions& o, int64_t b) { o.limits.aspect_max = static_cast<int>(b); },
     [](int64_t n) { return image_part(data_url(png(static_cast<uint32_t>(40 * n), 40))); }},
    {"tokens", "its tokens: expected at most 5, found 6", 5,
     [](ImageIntakeOptions& o, int64_t b) { o.tokens_max = b; },
     [](int64_t n) { return image_part(data_url(png(static_cast<uint32_t>(32 * n), 32))); }},
    {"memory", "at most 12288 bytes", 2 * 1536 * 4,
     [](ImageIntakeOptions& o, int64_t b) { o.memory_bytes_max = static_cast<size_t>(b); },
     [](int64_t n) {  // steps of a token, of 4 patches
       const int64_t tokens = n - 2 * 1536 * 4 + 2;
       return image_part(data_url(png(static_cast<uint32_t>(32 * tokens), 32)));
     }},
};

TEST(ImageRequest, LimitsHoldExactlyAtTheirBound) {
  for (const Limit& limit : kLimits) {
    SCOPED_TRACE(limit.what);
    ImageIntakeOptions options = image_options();
    limit.set(options, limit.bound);
    const ServedModel served = model_with_images(options);
    for (const int64_t used : {limit.bound - 1, limit.bound})
      EXPECT_EQ(refusal(Api::chat, chat(limit.parts(used)), served), "") << used;
    const std::string why = refusal(Api::chat, chat(limit.parts(limit.bound + 1)), served);
    EXPECT_NE(why.find(limit.says), std::string::npos) << why;
  }
}

TEST(ImageRequest, MemoryIsSharedAndComesBack) {
  ImageIntakeOptions options = image_options();
  options.memory_bytes_max = 3 * 1536 * 4;  // three tokens
  const ServedModel served = model_with_images(options);
  const std::string body = chat(image_part(data_url(png(64, 32))));
  {
    const GenerationRequest held = accept(Api::chat, body, served);
    EXPECT_EQ(served.images->counts().held_bytes, 2U * 1536 * 4);
    const std::string why = refusal(Api::chat, body, served, 429);
    EXPECT_NE(why.find("try again later"), std::string::npos) << why;
    EXPECT_EQ(served.images->counts().held_bytes, 2U * 1536 * 4);
  }
  EXPECT_EQ(served.images->counts().held_bytes, 0U);
  EXPECT_EQ(refusal(Api::chat, body, served), "");
  EXPECT_EQ(served.images->counts().images, 2);
}

TEST(ImageRequest, PromptsTooLongAreRefusedBeforeTheirImagesAreDecoded) {
  ServedModel served = model_with_images();
  served.context_max = 100;
  const std::string why = refusal(Api::chat, chat(image_part(data_url(png(512, 512)))), served);
  EXPECT_NE(why.find("the prompt is too long: expected at most 99 tokens"), std::string::npos);
  EXPECT_EQ(served.images->counts().images, 0);
  EXPECT_NE(
      refusal(Api::chat, chat(image_part(data_url(png(32, 32))), R"(,"truncate_prompt_tokens":20)"))
          .find("truncate_prompt_tokens beside images"),
      std::string::npos);
}

TEST(ImageRequest, WrongImagesAreOneLineEach) {
  const std::string sound = png(64, 64);
  std::string lying = sound;
  lying.replace(16, 8, testing::number4(60000) + testing::number4(60000));
  const std::string head = testing::number4(10000) + testing::number4(10000);
  const std::string bomb =
      "\x89PNG\r\n\x1a\n" + testing::png_chunk("IHDR", head + std::string("\x08\0\0\0\0", 5));
  const std::pair<std::string, const char*> kRows[] = {
      {"data:image/png;base64,iVBORw0KGgo", "image 1: base64: expected a multiple of 4"},
      {"data:image/png;base64,iVBO Rw0KGgo=", "image 1: base64"},
      {"data:image/png,raw", "image 1: data URL: expected base64"},
      {"data:;base64,", "image 1: "},
      {data_url(sound.substr(0, sound.size() / 2)), "image 1: "},
      {data_url(sound.substr(0, 20)), "image 1: "},
      {data_url(lying), "image 1: "},
      {data_url(bomb), "image 1: "},
      {data_url(png(10000, 1)), "image 1: "},
      {data_url(png(0, 0)), "image 1: "},
      {data_url("BM" + std::string(100, '\0')), "JPEG, PNG, WebP"},
      {data_url("<svg xmlns='http://www.w3.org/2000/svg'/>"), "JPEG, PNG, WebP"},
      {data_url("just text"), "JPEG, PNG, WebP"},
      {"https://example.org/a.png", "an address, and this server fetches nothing"},
      {"file:///etc/passwd", "found another form"},
      {base64_of(sound), "found another form"}};
  for (const auto& [url, says] : kRows) {
    const std::string why = refusal(Api::chat, chat(image_part(url)));
    EXPECT_NE(why.find(says), std::string::npos) << url.substr(0, 60) << ": " << why;
  }
  const std::string second =
      chat(image_part(data_url(sound)) + "," + image_part(data_url(sound.substr(0, 300))));
  EXPECT_TRUE(refusal(Api::chat, second).starts_with("image 2: ")) << refusal(Api::chat, second);
  EXPECT_EQ(model().images->counts().held_bytes, 0U);
}

TEST(ImageRequest, CountsAreThoseOfThePrompt) {
  const std::string image = base64_of(png(96, 64));
  const std::string url = concat("data:image/png;base64,", image);
  const std::string body = chat(text_part("see") + "," + image_part(url));
  const std::vector<int32_t> prompt = accept(Api::chat, body).prompts.front();
  const auto read = [](OpenedText opened) {
    const HttpResponse response = finish_text(std::move(opened), model(), {});
    EXPECT_EQ(response.status, 200) << response.body;
    return parse_json(response.body, "an answer").value();
  };
  const Json tokens = read(tokenize(Api::chat, body, model(), {}));
  EXPECT_EQ(*tokens.find("count"), Json(prompt.size()));
  EXPECT_EQ(tokens.find("tokens")->as_array().size(), prompt.size());
  const Json rendered = read(apply_template(Api::chat, body, model(), {}));
  EXPECT_EQ(*rendered.find("count"), Json(prompt.size()));
  EXPECT_EQ(*rendered.find("prompt"),
            Json("<|im_start|>user\nsee<|vision_start|><|image_pad|><|vision_end|><|im_end|>\n"
                 "<|im_start|>assistant\n<think>\n"));
  const Json counted = read(count_tokens(
      Api::messages,
      concat(R"({"thinking":{"type":"adaptive"},"messages":[{"role":"user","content":[)",
             text_part("see"), R"(,{"type":"image","source":{"type":"base64","data":")", image,
             "\"}}]}]}"),
      model(), {}));
  EXPECT_EQ(*counted.find("input_tokens"), Json(prompt.size()));
  const Json responded = read(count_tokens(
      Api::responses,
      concat(R"({"input":[{"role":"user","content":[{"type":"input_text","text":"see"},)",
             R"({"type":"input_image","image_url":")", url, "\"}]}]}"),
      model(), {}));
  EXPECT_EQ(*responded.find("input_tokens"), Json(prompt.size()));
}

TEST(ImageRequest, PlacesOfTheCacheMoveWithTheTokens) {
  // A system prompt of over a page, then an image: the next turn shares both.
  const std::string system =
      concat(R"({"role":"system","content":")", std::string(100, 's'), "\"}");
  const auto request = accept(
      Api::chat,
      concat(R"({"messages":[)", system, R"(,{"role":"user","content":[)",
             image_part(data_url(png(320, 320))), R"(]},{"role":"assistant","content":"a"},)",
             R"({"role":"user","content":"b","cache_control":{"type":"ephemeral"}}]})"));
  const auto size = static_cast<int32_t>(request.prompts.front().size());
  ASSERT_EQ(request.cache.boundaries.size(), 2U);
  const MediaSpan& image = request.media.front().span;
  EXPECT_EQ(image.count, 100);
  EXPECT_LE(request.cache.boundaries[0], image.begin);
  EXPECT_GE(request.cache.boundaries[1], image.begin + image.count);
  EXPECT_GT(request.cache.pinned_tokens, image.begin + image.count);
  EXPECT_LE(request.cache.pinned_tokens, size);
}

TEST(ImageRequest, OfATextModelTheyAreRefusedAsBefore) {
  const ServedModel text = testing::served_model();
  const std::string why = refusal(Api::chat, chat(image_part(data_url(png(32, 32)))), text);
  EXPECT_EQ(why,
            "messages[0].content: parts of type \"image_url\" are not supported by this "
            "server; send text only");
  const std::string settings = R"(,"mm_processor_kwargs":{"max_pixels":1})";
  EXPECT_EQ(refusal(Api::chat, chat(text_part("a"), settings), text), "");
}

}  // namespace
}  // namespace nibble
