// The requests that could ever run. What becomes of them: engine_core.cc.
#include "engine/engine_core.h"

namespace nibble {

Result<void> EngineCore::admissible(const SequenceRequest& request) const {
  const auto refuse = [](const ErrorParts& parts) {
    return make_error(ErrorCode::invalid_argument, parts);
  };
  if (request.prompt.empty())
    return refuse({.what = "the prompt is empty", .expected = "at least one token"});
  for (const int32_t token : request.prompt)
    if (token < 0 || token >= config_.vocab_rows)
      return refuse({.what = "a prompt token is not in the vocabulary",
                     .expected = concat("0 to ", config_.vocab_rows - 1),
                     .found = concat(token)});
  if (request.max_tokens < 1)
    return refuse(
        {.what = "max_tokens", .expected = "at least 1", .found = concat(request.max_tokens)});
  TRY(admissible_media(request));
  const int64_t total = static_cast<int64_t>(request.prompt.size()) + request.max_tokens;
  if (total > settings_.context_max)
    return refuse({.what = "the request is longer than the context",
                   .expected = concat("at most ", settings_.context_max, " tokens"),
                   .found = concat(request.prompt.size(), " of prompt and ", request.max_tokens,
                                   " to generate"),
                   .advice = "shorten the prompt or lower max_tokens"});
  if (KvPool::pages_for(total - 1) > settings_.pools.pages)
    return make_error(ErrorCode::no_memory, {.what = "the request can never fit the cache",
                                             .expected = concat("at most ", settings_.pools.pages,
                                                                " pages of ", kPageTokens),
                                             .found = concat(total, " tokens"),
                                             .advice = "raise --kv-cache-memory-bytes"});
  return {};
}

/// Patches that a tower can encode.
Result<void> EngineCore::admissible_rows(const MediaRows& media) const {
  if (!config_.vision || !media_.enabled())
    return make_error(
        ErrorCode::unsupported,
        {.what = "media", .expected = "a model with its vision tower loaded", .found = "none"});
  if (!media.patches)
    return make_error(ErrorCode::invalid_argument,
                      {.what = "media", .expected = "patches", .found = "none"});
  return check_patches(*media.patches, *config_.vision, media.span.count);
}

Result<void> EngineCore::admissible_media(const SequenceRequest& request) const {
  const auto refuse = [](const ErrorParts& parts) {
    return make_error(ErrorCode::invalid_argument, parts);
  };
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  int64_t end = 0;
  for (const MediaRows& media : request.media) {
    const MediaSpan& span = media.span;
    if (span.begin < end || span.count < 1 || int64_t{span.begin} + span.count > prompt)
      return refuse({.what = "media rows",
                     .expected = concat("ascending, disjoint, within ", prompt, " prompt tokens"),
                     .found = concat(span.count, " at ", span.begin)});
    end = int64_t{span.begin} + span.count;
    TRY(admissible_rows(media));
  }
  TRY(media_.admissible(request));
  if (!request.positions.empty() && static_cast<int64_t>(request.positions.size()) != prompt)
    return refuse({.what = "prompt positions",
                   .expected = concat(prompt),
                   .found = concat(request.positions.size())});
  for (const auto& position : request.positions)
    for (const int32_t axis : position)
      if (axis < 0 || axis >= prompt)
        return refuse({.what = "a prompt position",
                       .expected = concat("0 to ", prompt - 1),
                       .found = concat(axis)});
  return {};
}

}  // namespace nibble
