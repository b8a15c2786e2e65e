// Requests with videos, from body to tokens and patches: lists of frames, and files that scripts in
// ffmpeg's place decode; every limit at its bound, every refusal one line without the bytes.
#include <gtest/gtest.h>

#include <algorithm>

#include "media/testing/fake_programs.h"
#include "server/routes/text_routes.h"
#include "server/testing/media_requests.h"

namespace nibble {
namespace {

using testing::base64_of;
using testing::chat;
using testing::data_url;
using testing::frames_part;
using testing::image_options;
using testing::image_part;
using testing::kImagePad;
using testing::kVideoPad;
using testing::model_with_images;
using testing::png;
using testing::text_part;

const ServedModel& model() { return testing::media_model(); }

std::string file_part(std::string_view members = "") {
  return concat(R"({"type":"video_url","video_url":{"url":"data:video/mp4;base64,)",
                base64_of(fake_mp4()), "\"}", members, "}");
}

GenerationRequest accept(const std::string& body, const ServedModel& served = model()) {
  return testing::accept(Api::chat, body, served);
}

std::string refusal(const std::string& body, const ServedModel& served = model(),
                    int status = 400) {
  return testing::refusal(Api::chat, body, served, status);
}

std::string repeated(std::string_view text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

/// One temporal patch in a prompt.
std::string step(std::string_view time, int rows) {
  return concat("<", time, " seconds><|vision_start|>", repeated("<|video_pad|>", rows),
                "<|vision_end|>");
}

std::vector<int32_t> tokens_of(const std::string& text) {
  return model().tokenizer.encode(text, SpecialTokens::recognised).value();
}

/// A model whose videos are decoded by these scripts.
ServedModel model_with(const FakePrograms& programs, ImageIntakeOptions options = image_options()) {
  options.videos.decoder =
      std::make_shared<const VideoDecoder>(programs.decoder(options.videos.limits));
  return model_with_images(options);
}

TEST(VideoRequest, TimesAndFramesBesideTextAndImages) {
  // 64 x 96 is 2 x 3 tokens.
  const GenerationRequest request = accept(
      chat(concat(text_part("a:"), ",", frames_part(64, 96, {1, 2, 3}), ",", text_part("b"), ",",
                  image_part(data_url(png(32, 32, 7))), ",", frames_part(32, 32, {9}))));
  EXPECT_EQ(request.prompts.front(),
            tokens_of(concat("<|im_start|>user\na:", step("0.2", 6), step("1.0", 6),
                             "b<|vision_start|><|image_pad|><|vision_end|>", step("0.0", 1),
                             "<|im_end|>\n<|im_start|>assistant\n<think>\n")));
  ASSERT_EQ(request.media.size(), 4U);
  const VisionConfig vision{.hidden = 8, .patch = 16, .temporal_patch = 2, .merge = 2};
  const int32_t counts[] = {6, 6, 1, 1};
  const int32_t pads[] = {kVideoPad, kVideoPad, kImagePad, kVideoPad};
  int32_t end = 0;
  for (size_t i = 0; i < 4; ++i) {
    const MediaSpan& span = request.media[i].span;
    EXPECT_GT(span.begin, end);
    EXPECT_EQ(span.count, counts[i]);
    end = span.begin + span.count;
    for (int32_t at = span.begin; at < end; ++at)
      EXPECT_EQ(request.prompts.front()[static_cast<size_t>(at)], pads[i]);
    EXPECT_TRUE(check_patches(*request.media[i].patches, vision, span.count).ok());
  }
  // (channel, frame, row, column): the last frame stands for one that is missing.
  const auto levels_of = [&](size_t i, size_t frame) {
    return request.media[i].patches->levels[frame * 256];
  };
  EXPECT_EQ(levels_of(0, 0), 1);
  EXPECT_EQ(levels_of(0, 1), 2);
  EXPECT_EQ(levels_of(1, 0), 3);
  EXPECT_EQ(levels_of(1, 1), 3);
  EXPECT_EQ(model().images->counts().videos, 2);
}

TEST(VideoRequest, EqualFramesHaveEqualDigestsAndOthersDoNot) {
  const auto media = accept(chat(frames_part(64, 32, {1, 2, 1, 2, 2, 1}))).media;
  ASSERT_EQ(media.size(), 3U);
  EXPECT_EQ(media[0].span.digest, media[1].span.digest);
  EXPECT_NE(media[0].span.digest, media[2].span.digest);
  // A still image of the same pixels is normalised in another arithmetic.
  const auto image = accept(chat(image_part(data_url(png(64, 32, 1))))).media;
  EXPECT_NE(accept(chat(frames_part(64, 32, {1}))).media[0].span.digest, image[0].span.digest);
}

TEST(VideoRequest, FilesAreDecodedByThePrograms) {
  const FakePrograms programs(echoing(five_frames()), writing_frames(5));
  const ServedModel served = model_with(programs);
  const std::string grid = concat("<|im_start|>user\n", step("0.2", 1), step("1.2", 1),
                                  step("2.0", 1), "<|im_end|>\n<|im_start|>assistant\n<think>\n");
  EXPECT_EQ(accept(chat(file_part()), served).prompts.front(), tokens_of(grid));
  // Fewer frames by the request, and by the part, which goes before it.
  const FakePrograms two(echoing(five_frames()), writing_frames(2));
  const std::string last =
      concat("<|im_start|>user\n", step("1.0", 1), "<|im_end|>\n<|im_start|>assistant\n<think>\n");
  EXPECT_EQ(accept(chat(file_part(), R"(,"mm_processor_kwargs":{"num_frames":2})"), model_with(two))
                .prompts.front(),
            tokens_of(last));
  ImageIntakeOptions options = image_options();
  options.videos.processor.min_frames = 1;
  EXPECT_EQ(accept(chat(file_part(R"(,"fps":0.8)"), R"(,"mm_processor_kwargs":{"fps":2})"),
                   model_with(two, options))
                .prompts.front(),
            tokens_of(last));
}

TEST(VideoRequest, CountsAreThoseOfThePrompt) {
  const std::string body = chat(concat(text_part("see"), ",", frames_part(96, 64, {1, 2, 3})));
  const std::vector<int32_t> prompt = accept(body).prompts.front();
  const auto read = [](OpenedText opened) {
    const HttpResponse response = finish_text(std::move(opened), model(), {});
    EXPECT_EQ(response.status, 200) << response.body;
    return parse_json(response.body, "an answer").value();
  };
  const Json tokens = read(tokenize(Api::chat, body, model(), {}));
  EXPECT_EQ(*tokens.find("count"), Json(prompt.size()));
  const Json rendered = read(apply_template(Api::chat, body, model(), {}));
  EXPECT_EQ(*rendered.find("count"), Json(prompt.size()));
  EXPECT_EQ(*rendered.find("prompt"),
            Json("<|im_start|>user\nsee<|vision_start|><|video_pad|><|vision_end|><|im_end|>\n"
                 "<|im_start|>assistant\n<think>\n"));
}

TEST(VideoRequest, ResultsOfToolsMayHoldVideos) {
  const auto request = accept(concat(
      R"({"messages":[{"role":"user","content":"look"},{"role":"assistant","content":"",)",
      R"("tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]},)",
      R"({"role":"tool","tool_call_id":"1","content":[)", text_part("clip"), ",",
      frames_part(32, 32, {1}), "]}]}"));
  const std::string text = model().tokenizer.decode(request.prompts.front(), SkipSpecial::no);
  EXPECT_NE(text.find("<tool_response>\nclip<0.0 seconds><|vision_start|>"), std::string::npos)
      << text;
}

TEST(VideoRequest, WithoutFfmpegListsOfFramesAreTaken) {
  EXPECT_EQ(refusal(chat(file_part())), "video 1: video: ffmpeg is missing");
  EXPECT_EQ(refusal(chat(frames_part(32, 32, {1}))), "");
}

TEST(VideoRequest, ResponsesTakeThePartsOfChats) {
  const auto request = parse_generation_request(
      Api::responses,
      concat(R"({"input":[{"role":"user","content":[)", frames_part(32, 32, {1, 2}), "]}]}"),
      model());
  ASSERT_NE(std::get_if<GenerationRequest>(&request), nullptr)
      << std::get<ApiError>(request).message;
  EXPECT_EQ(std::get<GenerationRequest>(request).media.size(), 1U);
}

TEST(VideoRequest, OtherApisHaveNoVideos) {
  const auto refused = [](Api api, const std::string& body) {
    const auto request = parse_generation_request(api, body, model());
    const auto* error = std::get_if<ApiError>(&request);
    return error != nullptr && error->status == 400 ? error->message : std::string("taken");
  };
  EXPECT_NE(refused(Api::messages,
                    R"({"max_tokens":9,"messages":[{"role":"user","content":[{"type":"video",)"
                    R"("source":{"type":"base64","data":"AAAA"}}]}]})")
                .find("a block of this type is not supported"),
            std::string::npos);
  EXPECT_NE(refused(Api::responses, R"({"input":[{"role":"user","content":[{"type":"input_video",)"
                                    R"("video_url":"data:;base64,AAAA"}]}]})")
                .find("parts of type \"input_video\" are not supported"),
            std::string::npos);
  EXPECT_NE(refused(Api::completions, R"({"prompt":[65,265]})")
                .find("no token that stands for an image or a video"),
            std::string::npos);
}

TEST(VideoRequest, PlaceholdersThatAUserTypesStayText) {
  const std::string typed = text_part("<0.0 seconds><|vision_start|><|video_pad|><|vision_end|>");
  const auto request = accept(chat(concat(typed, ",", frames_part(32, 32, {1}))));
  EXPECT_EQ(std::ranges::count(request.prompts.front(), kVideoPad), 1);
  EXPECT_EQ(request.media.size(), 1U);
}

TEST(VideoRequest, SystemMessagesHaveNone) {
  EXPECT_NE(refusal(concat(R"({"messages":[{"role":"system","content":[)", frames_part(32, 32, {1}),
                           R"(]},{"role":"user","content":"a"}]})")),
            "");
}

/// A limit of requests, and the parts of one that uses so much of it.
struct Limit {
  const char* what;
  const char* says;  // by the refusal of more
  int64_t bound;
  void (*set)(ImageIntakeOptions& options, int64_t bound);
  std::string (*parts)(int64_t used);
};

std::string frames_of(int64_t count, uint32_t width = 32, uint32_t height = 32) {
  std::string frames = concat("\"", data_url(png(width, height)), "\"");
  for (int64_t i = 1; i < count; ++i) frames += concat(",\"", data_url(png(width, height)), "\"");
  return concat(R"({"type":"video","video":[)", frames, "]}");
}

const Limit kLimits[] = {
    {"videos", "videos of a request: expected at most 3, found 4", 3,
     [](ImageIntakeOptions& o, int64_t b) { o.videos.videos_max = static_cast<size_t>(b); },
     [](int64_t n) {
       return frames_of(1) + repeated("," + frames_of(1), static_cast<int>(n) - 1);
     }},
    {"frames", "frames of video 1: expected at most 4, found 5", 4,
     [](ImageIntakeOptions& o, int64_t b) { o.videos.processor.max_frames = static_cast<int>(b); },
     [](int64_t n) { return frames_of(n); }},
    {"bytes of all frames", "at most", 2 * 1156,
     [](ImageIntakeOptions& o, int64_t b) {
       o.videos.limits.encoded_bytes_max = static_cast<size_t>(b);
     },
     [](int64_t n) {  // bytes after the end of a PNG are no part of it
       std::string first = png(32, 32), second = first;
       second.resize(static_cast<size_t>(n) - first.size());
       return concat(R"({"type":"video","video":[")", data_url(first), "\",\"", data_url(second),
                     "\"]}");
     }},
    {"tokens of a frame", "the tokens of its frames: expected at most 5, found 6", 5,
     [](ImageIntakeOptions& o, int64_t b) { o.tokens_max = b; },
     [](int64_t n) { return frames_of(1, static_cast<uint32_t>(32 * n)); }},
    {"memory of several",
     "video 3: the bytes of the pixels of its request: expected at most 18432,", 3 * 1536 * 4,
     [](ImageIntakeOptions& o, int64_t b) {
       o.memory_bytes_max = static_cast<size_t>(b);
       o.videos.videos_max = 3;
     },
     [](int64_t n) {  // an image of a token, and steps of a video of one
       std::string parts = image_part(data_url(png(32, 32)));
       for (int64_t i = 1; i < n - 3 * 1536 * 4 + 3; ++i) parts += "," + frames_of(1);
       return parts;
     }},
    {"memory", "the bytes of the pixels of its request: expected at most 12288, found 18432",
     2 * 1536 * 4,
     [](ImageIntakeOptions& o, int64_t b) { o.memory_bytes_max = static_cast<size_t>(b); },
     [](int64_t n) {  // steps of a token, of 4 patches
       return frames_of(1, static_cast<uint32_t>(32 * (n - 2 * 1536 * 4 + 2)));
     }},
};

TEST(VideoRequest, LimitsHoldExactlyAtTheirBound) {
  for (const Limit& limit : kLimits) {
    SCOPED_TRACE(limit.what);
    ImageIntakeOptions options = image_options();
    limit.set(options, limit.bound);
    const ServedModel served = model_with_images(options);
    for (const int64_t used : {limit.bound - 1, limit.bound})
      EXPECT_EQ(refusal(chat(limit.parts(used)), served), "") << used;
    const std::string why = refusal(chat(limit.parts(limit.bound + 1)), served);
    EXPECT_NE(why.find(limit.says), std::string::npos) << why;
    EXPECT_EQ(served.images->counts().held_bytes, 0U);
  }
}

TEST(VideoRequest, BytesOfAFileAreHeldToTheirLimit) {
  const FakePrograms programs(echoing(five_frames()), writing_frames(5));
  const size_t size = fake_mp4().size();
  for (const size_t most : {size - 1, size, size + 1}) {
    ImageIntakeOptions options = image_options();
    options.videos.limits.encoded_bytes_max = most;
    const std::string why = refusal(chat(file_part()), model_with(programs, options));
    EXPECT_EQ(why.empty(), most >= size) << most << ": " << why;
  }
}

TEST(VideoRequest, MemoryIsSharedWithImagesAndComesBack) {
  ImageIntakeOptions options = image_options();
  options.memory_bytes_max = 3 * 1536 * 4;  // three tokens
  const ServedModel served = model_with_images(options);
  const std::string body = chat(frames_of(3));  // two temporal patches of one token
  {
    const GenerationRequest held = accept(body, served);
    EXPECT_EQ(served.images->counts().held_bytes, 2U * 1536 * 4);
    const std::string why = refusal(body, served, 429);
    EXPECT_NE(why.find("try again later"), std::string::npos) << why;
    EXPECT_NE(refusal(chat(image_part(data_url(png(64, 32)))), served, 429), "");
    EXPECT_EQ(refusal(chat(image_part(data_url(png(32, 32)))), served), "");
  }
  EXPECT_EQ(served.images->counts().held_bytes, 0U);
  EXPECT_EQ(refusal(body, served), "");
}

TEST(VideoRequest, TooManyTokensAreRefusedBeforeTheVideoIsDecoded) {
  ImageIntakeOptions options = image_options();
  const FakePrograms programs(
      echoing(
          probe_answer(R"("width":640,"height":640,"avg_frame_rate":"2/1","nb_read_packets":"5")")),
      "exit 9");
  ServedModel served = model_with(programs, options);
  served.context_max = 100;
  const std::string why = refusal(chat(file_part()), served);
  EXPECT_NE(why.find("video 1: its tokens, for this context: expected at most 100, found 588"),
            std::string::npos)
      << why;
}

TEST(VideoRequest, TruncationIsRefusedBeforeTheVideoIsDecoded) {
  const FakePrograms programs("exit 9", "");
  const std::string why =
      refusal(chat(file_part(), R"(,"truncate_prompt_tokens":20)"), model_with(programs));
  EXPECT_NE(why.find("truncate_prompt_tokens beside images or videos"), std::string::npos) << why;
}

TEST(VideoRequest, TimeToDecodeIsNoTimeToFetch) {
  ImageFetcherOptions fetching;
  fetching.hosts = ImageHosts::parse({"img.test"}, ImageHosts::Plain::refused).value();
  fetching.resolve = [](const std::string&) -> Result<std::vector<std::string>> {
    return std::vector<std::string>{"127.0.0.1"};  // an address that is not allowed
  };
  fetching.time_max = std::chrono::milliseconds(300);
  ImageIntakeOptions options = image_options();
  options.fetcher = std::make_shared<const ImageFetcher>(std::move(fetching));
  const FakePrograms slow(echoing(five_frames()), "sleep 1; " + writing_frames(5));
  const std::string body =
      chat(file_part() + R"(,{"type":"video_url","video_url":"https://img.test/a.mp4"})");
  // A machine that stands still takes time to fetch: once in a few tries it does not.
  std::string why = refusal(body, model_with(slow, options));
  for (int i = 1; i < 10 && why.find("network") == std::string::npos; ++i)
    why = refusal(body, model_with(slow, options));
  EXPECT_TRUE(why.starts_with("video 2: ")) << why;
  EXPECT_NE(why.find("network"), std::string::npos) << why;
}

TEST(VideoRequest, NobodyDecodesForAClientThatHasLeft) {
  const FakePrograms programs("sleep 60", "");
  const ServedModel served = model_with(programs);
  auto opened = open_generation_request(Api::chat, chat(file_part()), served);
  auto& request = std::get<OpenedRequest>(opened);
  request.request.abandoned = [] { return true; };
  const auto read = finish_generation_request(std::move(request), served);
  ASSERT_NE(std::get_if<ApiError>(&read), nullptr);
  EXPECT_EQ(std::get<ApiError>(read).message, "video 1: video: the client has left");
}

TEST(VideoRequest, WrongVideosAreOneLineEach) {
  const FakePrograms programs("echo 'moov atom not found' >&2; exit 1", "");
  const ServedModel served = model_with(programs);
  const auto part = [](std::string_view bytes) {
    return concat(R"({"type":"video_url","video_url":{"url":"data:;base64,)", base64_of(bytes),
                  "\"}}");
  };
  const std::pair<std::string, const char*> kRows[] = {
      {part("#EXTM3U\nfile:///etc/passwd"), "video 1: "},
      {part("ffconcat version 1.0\nfile '/etc/passwd'"), "video 1: "},
      {part("just text"), "video 1: "},
      {part(png(32, 32)), "video 1: "},
      {file_part(), "video 1: video: expected a file that ffmpeg can read, found moov atom not "},
      {R"({"type":"video_url","video_url":"https://example.org/a.mp4"})",
       "video 1: its url: expected data:video/mp4;base64,..., found an address, and this server "
       "fetches nothing"},
      {R"({"type":"video_url","video_url":"file:///etc/passwd"})", "found another form"},
      {R"({"type":"video","video":["file:///etc/passwd"]})",
       "video 1: its url: expected data:image/jpeg;base64,..., found another form"},
      {R"({"type":"video_url","video_url":"data:video/jpeg;base64,AAAA,"})", "video 1: "},
      {concat(R"({"type":"video","video":[")", data_url(png(32, 32)), "\",\"",
              data_url(png(64, 32)), "\"]}"),
       "video 1: frame 2: expected 32 x 32 pixels, as frame 1, found 64 x 32"},
      {concat(frames_of(1), ",", R"({"type":"video","video":["data:;base64,AAAA"]})"),
       "video 2: frame 1: "}};
  for (const auto& [parts, says] : kRows) {
    const std::string why = refusal(chat(parts), served);
    EXPECT_NE(why.find(says), std::string::npos) << parts.substr(0, 90) << ": " << why;
  }
  EXPECT_NE(refusal(chat(frames_of(1), R"(,"mm_processor_kwargs":{"num_frames":9})"))
                .find("num_frames: expected a whole number from 1 to 8"),
            std::string::npos);
  EXPECT_EQ(served.images->counts().held_bytes, 0U);
}

}  // namespace
}  // namespace nibble
