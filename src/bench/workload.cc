// Random prompts and the JSON around them.
#include "bench/workload.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <span>

namespace nibble {

namespace {

// Common words; nearly every tokenizer has each, with its blank, as one token.
constexpr std::string_view kWords[] = {
    "the",     "time",    "year",     "people", "way",    "day",     "man",    "thing",
    "woman",   "life",    "child",    "world",  "school", "state",   "family", "group",
    "country", "problem", "hand",     "part",   "place",  "case",    "week",   "company",
    "system",  "program", "question", "work",   "number", "night",   "point",  "home",
    "water",   "room",    "mother",   "area",   "money",  "story",   "fact",   "month",
    "lot",     "right",   "study",    "book",   "eye",    "job",     "word",   "business",
    "issue",   "side",    "kind",     "head",   "house",  "service", "friend", "father",
    "power",   "hour",    "game",     "line",   "end",    "member",  "law",    "car"};

/// SplitMix64: seeds that lie beside each other give unlike streams.
uint64_t mixed(uint64_t seed) {
  seed += 0x9E3779B97F4A7C15ULL;
  seed = (seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9ULL;
  seed = (seed ^ (seed >> 27)) * 0x94D049BB133111EBULL;
  return seed ^ (seed >> 31);
}

constexpr uint64_t kPrefixStream = 1;
constexpr uint64_t kOutlierStream = 2;
constexpr uint64_t kTaskStream = 3;

uint64_t stream_seed(uint64_t seed, uint64_t stream, uint64_t number) {
  return mixed(mixed(mixed(seed) ^ stream) ^ number);
}

int64_t drawn_length(int64_t middle, double ratio, std::mt19937_64& random) {
  const auto least = static_cast<int64_t>(std::floor(static_cast<double>(middle) * (1 - ratio)));
  const auto most = static_cast<int64_t>(std::ceil(static_cast<double>(middle) * (1 + ratio)));
  if (ratio == 0.0) return middle;
  return std::uniform_int_distribution<int64_t>(std::max<int64_t>(least, 1), most)(random);
}

Json message(std::string_view role, const std::string& content) {
  return json_object({{"role", Json(role)}, {"content", Json(content)}});
}

}  // namespace

std::string Workload::words(int64_t tokens, uint64_t seed) const {
  const auto count =
      std::max<int64_t>(1, std::llround(static_cast<double>(tokens) * plan_.words_per_token));
  std::mt19937_64 random(seed);
  std::string text;
  for (int64_t i = 0; i < count; ++i) {
    if (i > 0) text += ' ';
    text += kWords[random() % std::size(kWords)];
  }
  return text;
}

Json Workload::prompt_ids(int64_t tokens, uint64_t seed) const {
  Json::Array ids;
  ids.reserve(static_cast<size_t>(plan_.prefix_tokens + tokens));
  const auto append = [&](int64_t count, uint64_t from) {
    std::mt19937_64 random(from);
    std::uniform_int_distribution<int32_t> id(plan_.id_first, plan_.id_last - 1);
    for (int64_t i = 0; i < count; ++i) ids.emplace_back(id(random));
  };
  append(plan_.prefix_tokens, stream_seed(plan_.seed, kPrefixStream, 0));
  append(tokens, seed);
  return Json(std::move(ids));
}

Json Workload::body(const Lengths& lengths) const {
  const bool chat = plan_.api == LoadApi::chat;
  Json options = json_object({{"include_usage", Json(true)}});
  if (plan_.counts_with_events) options.set("continuous_usage_stats", Json(true));
  Json body = json_object({{"model", Json(plan_.model)},
                           {chat ? "max_completion_tokens" : "max_tokens", Json(lengths.output)},
                           {"stream", Json(true)},
                           {"stream_options", std::move(options)}});
  if (plan_.ignore_eos) body.set("ignore_eos", Json(true));
  if (plan_.extra.is_object())
    for (const auto& [key, value] : plan_.extra.as_object()) body.set(key, value);
  return body;
}

PlannedRequest Workload::make(const Lengths& lengths, uint64_t seed,
                              const std::vector<Exchange>& before) const {
  PlannedRequest planned{.output_tokens = lengths.output};
  Json json = body(lengths);
  const uint64_t prefix_seed = stream_seed(plan_.seed, kPrefixStream, 0);
  if (plan_.api == LoadApi::chat) {
    Json::Array messages;
    if (plan_.prefix_tokens > 0)
      messages.push_back(message("system", words(plan_.prefix_tokens, prefix_seed)));
    for (const Exchange& each : before) {
      messages.push_back(message("user", each.question));
      messages.push_back(message("assistant", each.answer));
    }
    planned.question = words(lengths.input, seed);
    messages.push_back(message("user", planned.question));
    json.set("messages", Json(std::move(messages)));
  } else if (plan_.form == PromptForm::ids) {
    json.set("prompt", prompt_ids(lengths.input, seed));
  } else {
    std::string text;
    if (plan_.prefix_tokens > 0) text = words(plan_.prefix_tokens, prefix_seed) + " ";
    json.set("prompt", Json(text + words(lengths.input, seed)));
  }
  planned.body = json.dump();
  return planned;
}

PlannedRequest Workload::request(int64_t task, const std::vector<Exchange>& before) const {
  const uint64_t seed =
      stream_seed(plan_.seed, kTaskStream + before.size(), static_cast<uint64_t>(task));
  std::mt19937_64 random(mixed(seed));
  Lengths lengths;
  lengths.input = drawn_length(plan_.input_tokens, plan_.range_ratio, random);
  lengths.output = drawn_length(plan_.output_tokens, plan_.range_ratio, random);
  return make(lengths, seed, before);
}

PlannedRequest Workload::outlier(int64_t number, int64_t input_tokens,
                                 int64_t output_tokens) const {
  return make({.input = input_tokens, .output = output_tokens},
              stream_seed(plan_.seed, kOutlierStream, static_cast<uint64_t>(number)), {});
}

}  // namespace nibble
