// JSON of prompt log-probabilities.
#include "server/answer/prompt_logprobs.h"

#include <algorithm>

#include "base/check.h"

namespace nibble {

namespace {

constexpr double kLogprobMin = -9999.0;  // JSON has no minus infinity

Json entry_of(const Tokenizer& tokenizer, const TokenLogprob& entry, int32_t rank) {
  return Json(
      Json::Object{{"logprob", Json(std::max(entry.logprob, kLogprobMin))},
                   {"rank", Json(rank)},
                   {"decoded_token", Json(tokenizer.decode({&entry.token, 1}, SkipSpecial::no))}});
}

}  // namespace

Json prompt_logprobs_json(const Tokenizer& tokenizer, std::span<const PositionLogprobs> positions) {
  Json::Array list(1);
  for (const PositionLogprobs& position : positions) {
    Json entry(Json::Object{});
    entry.set(concat(position.chosen.token), entry_of(tokenizer, position.chosen, position.rank));
    for (size_t i = 0; i < position.top.size(); ++i)
      entry.set(concat(position.top[i].token),
                entry_of(tokenizer, position.top[i], static_cast<int32_t>(i) + 1));
    list.push_back(std::move(entry));
  }
  return Json(std::move(list));
}

Json echo_logprobs(const TokenNames& names, int32_t first_token,
                   std::span<const PositionLogprobs> positions, size_t& text_offset) {
  const PositionLogprobs first{.chosen = {first_token, 0.0}, .top = {}};
  Json logprobs = completion_logprobs(names, {&first, 1}, text_offset);
  logprobs.set("token_logprobs", Json(Json::Array(1)));
  logprobs.set("top_logprobs", Json(Json::Array(1)));
  append_logprobs(logprobs, completion_logprobs(names, positions, text_offset));
  return logprobs;
}

void append_logprobs(Json& logprobs, const Json& more) {
  for (const auto& [key, list] : more.as_object()) {
    Json* into = logprobs.find(key);
    CHECK(into != nullptr, "no list ", key);
    for (const Json& item : list.as_array()) into->push_back(item);
  }
}

}  // namespace nibble
