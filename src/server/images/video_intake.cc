// Outlines first, then pixels: what does not fit is refused before it is decoded.
#include "server/images/video_intake.h"

#include <algorithm>
#include <utility>

#include "media/processor_request.h"
#include "media/video/frame_list.h"
#include "server/images/media_bytes.h"

namespace nibble {

namespace {

constexpr std::string_view kExample = "data:video/mp4;base64,...";
constexpr std::string_view kFrameExample = "data:image/jpeg;base64,...";

/// The temporal patches of a video and the memory that they have.
struct HeldSteps {
  explicit HeldSteps(const std::shared_ptr<ByteBudget>& memory) : share(memory) {}
  ByteBudget::Share share;
  std::vector<MediaPatches> steps;
};

ApiError refused(size_t index, const Error& error) {
  if (error.code == ErrorCode::no_space) return ApiError::from(error);
  ApiError refusal = image_error({.what = concat(video_name(index), ": ", error.message)});
  if (error.code == ErrorCode::no_memory || error.code == ErrorCode::internal) refusal.status = 503;
  return refusal;
}

Error too_large(std::string_view what, int64_t most, int64_t found, std::string_view advice) {
  return make_error(ErrorCode::invalid_argument, {.what = what,
                                                  .expected = concat("at most ", most),
                                                  .found = concat(found),
                                                  .advice = advice});
}

}  // namespace

/// The state of a request's videos, as one after another is prepared.
struct VideoIntake::Job {
  const VideoRequest& request;
  VideoProcessor processor;
  ImageFetcher::Clock::time_point deadline;
  int64_t bytes = 0;  // bytes of patches that the request has so far
};

VideoIntake::VideoIntake(VideoIntakeOptions options, MediaShared shared)
    : options_(std::move(options)), shared_(std::move(shared)) {}

/// Refuses a video that is too large, and takes the memory for one that is not.
Result<void> VideoIntake::admit(const VideoOutline& outline, const Job& job,
                                ByteBudget::Share& share) const {
  if (outline.step_tokens > shared_.tokens_max)
    return too_large("the tokens of its frames", shared_.tokens_max, outline.step_tokens,
                     "send another shape of it, or raise --max-image-tokens");
  const int64_t tokens = outline.step_tokens * outline.grid.t;
  if (tokens > job.request.context_max)
    return too_large("its tokens, for this context", job.request.context_max, tokens,
                     "ask for fewer frames or pixels by mm_processor_kwargs");
  const auto most = static_cast<int64_t>(shared_.memory->bytes_max());
  if (const int64_t bytes = job.bytes + outline.patch_bytes; bytes > most)
    return too_large("the bytes of the pixels of its request", most, bytes,
                     "ask for fewer frames or pixels, or raise --max-image-memory");
  if (share.grow_to(static_cast<size_t>(outline.patch_bytes))) return {};
  return make_error(ErrorCode::no_space,
                    {.what = "the images and videos of other requests take all memory for them; "
                             "try again later"});
}

Result<PreparedVideo> VideoIntake::decode(const SentVideo& video, Job& job,
                                          const VideoJudge& judge) const {
  const auto bytes_of = [&](const std::string& url, size_t most, std::string_view example) {
    return media_bytes(url, most, shared_.fetcher.get(), job.deadline, example);
  };
  VideoProcessor processor = job.processor;
  if (video.fps) {
    processor.fps = *video.fps;
    processor.num_frames.reset();
  }
  size_t left = options_.limits.encoded_bytes_max;
  const bool is_list = !video.frames.empty();
  if (!is_list && !options_.decoder.ok()) return options_.decoder.error();
  std::vector<std::vector<std::byte>> files;
  if (!is_list) files.push_back(TRY(bytes_of(video.url, left, kExample)));
  for (const std::string& url : video.frames) {
    const size_t most = std::min(left, shared_.frames.encoded_bytes_max);
    files.push_back(TRY(bytes_of(url, most, kFrameExample)));
    left -= files.back().size();
  }
  const auto begin = ImageFetcher::Clock::now();
  auto prepared =
      is_list
          ? prepare_frames(files, {.each = shared_.frames, .whole = options_.limits}, processor,
                           judge, job.request.gone)
          : options_.decoder.value()->prepare(files.front(), processor, judge, job.request.gone);
  job.deadline += ImageFetcher::Clock::now() - begin;  // it is for fetching alone
  return prepared;
}

Result<PreparedSteps> VideoIntake::prepare_one(const SentVideo& video, Job& job) const {
  auto held = std::make_shared<HeldSteps>(shared_.memory);
  PreparedVideo found = TRY(decode(
      video, job, [&](const VideoOutline& outline) { return admit(outline, job, held->share); }));
  job.bytes += found.outline.patch_bytes;
  PreparedSteps prepared{
      .times = std::move(found.outline.times), .rows = found.outline.step_tokens, .steps = {}};
  held->steps.resize(found.patches.size());
  for (size_t i = 0; i < found.patches.size(); ++i) {
    ImagePatches& from = found.patches[i];
    MediaPatches& to = held->steps[i];
    to.grid = {.t = from.grid.t, .h = from.grid.h, .w = from.grid.w};
    to.levels = std::move(from.levels);
    to.values = from.values;
    prepared.steps.push_back({.digest = from.digest, .patches = {held, &to}});
  }
  return prepared;
}

std::variant<std::vector<PreparedSteps>, ApiError> VideoIntake::prepare(
    std::span<const SentVideo> videos, const VideoRequest& request) const {
  Job job{.request = request,
          .processor = options_.processor,
          .deadline = {},
          .bytes = request.image_bytes};
  if (!request.settings.is_null()) {
    auto given = with_request_settings(options_.processor, request.settings);
    if (!given.ok())
      return ApiError{.message = given.error().message, .param = "mm_processor_kwargs"};
    job.processor = std::move(given).value();
  }
  if (shared_.fetcher) job.deadline = shared_.fetcher->deadline();
  std::vector<PreparedSteps> prepared;
  for (const SentVideo& video : videos) {
    auto one = prepare_one(video, job);
    if (!one.ok()) return refused(prepared.size(), one.error());
    prepared.push_back(std::move(one).value());
  }
  prepared_ += std::ssize(prepared);
  return prepared;
}

}  // namespace nibble
