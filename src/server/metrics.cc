// Names and meanings of vLLM's rows: docs.vllm.ai, "Production Metrics".
#include "server/metrics.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/json.h"

namespace nibble {

namespace {

constexpr double kSeconds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,   0.25,
                               0.5,   1.0,    2.5,   5.0,  10.0,  30.0, 120.0, 600.0};
constexpr double kTokens[] = {1,    2,    5,    10,    20,    50,    100,    200,   500,
                              1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000};

double seconds(Metrics::Time begin, Metrics::Time end) {
  return std::chrono::duration<double>(end - begin).count();
}

/// vLLM has stop, length, abort; the rest under names of its kind.
std::string_view reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::cancelled:
      return "abort";
    case FinishReason::error:
      return "error";
    case FinishReason::deadline:
      return "deadline";
    case FinishReason::repetition:
      return "repetition";
  }
  return "other";
}

std::string number(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15)
    return concat(static_cast<int64_t>(value));
  return Json(value).dump();
}

/// A label's value, escaped as the format wants it: as JSON does, for what names can hold.
std::string label(std::string_view name, std::string_view value) {
  std::string out = concat(name, "=");
  append_json_string(out, value);
  return out;
}

/// Writes rows under both names.
class Exposition {
 public:
  explicit Exposition(std::string_view model) : model_(label("model_name", model)) {}

  enum class Also : uint8_t { nobody, vllm };
  using Sample = std::pair<std::string, double>;  // more labels or "", value

  void rows(Also also, std::string_view name, std::string_view type, std::string_view help,
            const std::vector<Sample>& samples) {
    for (const std::string& full : names(also, name)) {
      head(full, type, help);
      for (const auto& [labels, value] : samples) line(full, labels, value);
    }
  }
  void gauge(Also also, std::string_view name, std::string_view help, double value) {
    rows(also, name, "gauge", help, {{"", value}});
  }
  void counter(Also also, std::string_view name, std::string_view help, int64_t value) {
    rows(also, name, "counter", help, {{"", static_cast<double>(value)}});
  }
  void histogram(std::string_view name, std::string_view help, const Histogram& h) {
    for (const std::string& full : names(Also::vllm, name)) {
      head(full, "histogram", help);
      for (size_t i = 0; i < h.bounds().size(); ++i)
        line(concat(full, "_bucket"), label("le", Json(h.bounds()[i]).dump()),
             static_cast<double>(h.counts()[i]));
      line(concat(full, "_bucket"), "le=\"+Inf\"", static_cast<double>(h.count()));
      line(concat(full, "_sum"), "", h.sum());
      line(concat(full, "_count"), "", static_cast<double>(h.count()));
    }
  }
  std::string take() { return std::move(text_); }

 private:
  static std::vector<std::string> names(Also also, std::string_view name) {
    std::vector<std::string> both = {concat("nibble_", name)};
    if (also == Also::vllm) both.push_back(concat("vllm:", name));
    return both;
  }
  void head(std::string_view name, std::string_view type, std::string_view help) {
    text_ += concat("# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n");
  }
  void line(std::string_view name, std::string_view labels, double value) {
    text_ +=
        concat(name, "{", model_, labels.empty() ? "" : ",", labels, "} ", number(value), "\n");
  }

  std::string model_;
  std::string text_;
};

double share(const EngineStats::Pool& pool) {
  return pool.total > 0 ? static_cast<double>(pool.used) / static_cast<double>(pool.total) : 0.0;
}

/// Images and videos on their way into prompts.
void add_media(const MediaCounters& media, Exposition& out) {
  using Also = Exposition::Also;
  out.counter(Also::nobody, "media_encoded_total", "Images and frames put through the tower.",
              media.encoded);
  out.counter(Also::nobody, "media_found_total", "Images and frames that were encoded before.",
              media.found);
  out.counter(Also::nobody, "media_evicted_total", "Encoded images and frames that had to go.",
              media.evicted);
  out.counter(Also::nobody, "media_restored_total",
              "Encoded images and frames that came back from host memory.", media.restored);
}

void add_speculation(const EngineCounters& engine, Exposition& out) {
  using Also = Exposition::Also;
  out.counter(Also::vllm, "spec_decode_num_drafts_total", "Passes of a sequence with drafts.",
              engine.draft_rounds);
  out.counter(Also::vllm, "spec_decode_num_draft_tokens_total", "Drafted tokens computed.",
              engine.drafted);
  out.counter(Also::vllm, "spec_decode_num_accepted_tokens_total", "Of those, right ones.",
              engine.drafts_right);
  std::vector<Exposition::Sample> by_place;
  for (size_t place = 0; place < engine.right_at.size(); ++place)
    by_place.emplace_back(concat("position=\"", place, "\""),
                          static_cast<double>(engine.right_at[place]));
  out.rows(Also::vllm, "spec_decode_num_accepted_tokens_per_pos_total", "counter",
           "Right ones by their place in a round, from 0.", by_place);
  constexpr std::array<std::string_view, kProposers> kNames = {"text", "mtp", "grammar"};
  std::vector<Exposition::Sample> drafted;
  std::vector<Exposition::Sample> right;
  for (size_t by = 0; by < kProposers; ++by) {
    const std::string proposer = label("proposer", kNames[by]);
    drafted.emplace_back(proposer, static_cast<double>(engine.drafted_by[by]));
    right.emplace_back(proposer, static_cast<double>(engine.right_by[by]));
  }
  out.rows(
      Also::nobody, "draft_tokens_total", "counter",
      "Drafted tokens computed, by who proposed them: the text before, the MTP layer, a grammar.",
      drafted);
  out.rows(Also::nobody, "accepted_draft_tokens_total", "counter", "Of those, right ones.", right);
  out.counter(Also::nobody, "refused_draft_tokens_total",
              "Drafted tokens not computed, since a grammar does not allow them.",
              engine.drafts_refused);
}

}  // namespace

void Histogram::add(double value, int64_t times) {
  const auto first = std::ranges::lower_bound(bounds_, value) - bounds_.begin();
  for (auto i = static_cast<size_t>(first); i < counts_.size(); ++i) counts_[i] += times;
  count_ += times;
  sum_ += value * static_cast<double>(times);
}

Metrics::Metrics()
    : first_token_(kSeconds),
      inter_token_(kSeconds),
      whole_(kSeconds),
      prompt_sizes_(kTokens),
      answer_sizes_(kTokens) {}

void Metrics::begin(uint64_t id, Time now) { timings_[id] = {.begin = now, .last = now}; }

void Metrics::take(const EngineEvent& event, Time now) {
  const uint64_t id = std::visit([](const auto& e) { return e.id; }, event);
  const auto found = timings_.find(id);
  if (found == timings_.end()) return;
  Timing& timing = found->second;
  if (const auto* fresh = std::get_if<NewTokens>(&event)) {
    const auto tokens = static_cast<int64_t>(fresh->tokens.size());
    const double gap = seconds(timing.last, now);
    if (!timing.spoke)
      first_token_.add(seconds(timing.begin, now));
    else
      inter_token_.add(gap / static_cast<double>(tokens), tokens);
    timing.spoke = true;
    timing.generated += tokens;
    tokens_so_far_ += tokens;
    timing.last = now;
  } else if (const auto* end = std::get_if<Finished>(&event)) {
    ++finished_[std::string(reason_name(end->reason))];
    prompt_tokens_ += end->prompt_tokens;
    cached_tokens_ += end->cached_tokens;
    generated_tokens_ += end->completion_tokens;
    prompt_sizes_.add(end->prompt_tokens);
    answer_sizes_.add(end->completion_tokens);
    whole_.add(seconds(timing.begin, now));
    timings_.erase(found);
  }
}

Metrics::Progress Metrics::progress(uint64_t id, Time now) const {
  const auto found = timings_.find(id);
  if (found == timings_.end()) return {};
  return {.seconds = seconds(found->second.begin, now), .generated = found->second.generated};
}

void Metrics::call(const Calls& calls) {
  calls_.complete += calls.complete;
  calls_.malformed += calls.malformed;
}

void Metrics::refuse(int status) { ++refused_[status]; }

namespace {

void add_images(const ImageIntake::Counts& images, Exposition& out) {
  using Also = Exposition::Also;
  out.counter(Also::nobody, "images_prepared_total", "Images decoded for the model.",
              images.images);
  out.counter(Also::nobody, "videos_prepared_total", "Videos decoded for the model.",
              images.videos);
  out.gauge(Also::nobody, "image_memory_bytes",
            "Decoded images and videos, which requests hold until they end.",
            static_cast<double>(images.held_bytes));
}

/// Pools, and the weights of a CPU by where they are read.
void add_memory(const EngineStats& engine, Exposition& out) {
  using Also = Exposition::Also;
  for (const auto& [name, pool] : {std::pair{"pages", engine.pages},
                                   {"state_slots", engine.slots},
                                   {"host_pages", engine.host_pages},
                                   {"host_state_slots", engine.host_slots}}) {
    out.gauge(Also::nobody, concat(name, "_used"), "In use, not by the prefix cache alone.",
              static_cast<double>(pool.used));
    out.gauge(Also::nobody, concat(name, "_capacity"), "Reserved at start.",
              static_cast<double>(pool.total));
  }
  std::vector<Exposition::Sample> weights;
  if (engine.weights)
    weights = {{label("place", "copied"), static_cast<double>(engine.weights->copied)},
               {label("place", "mapped"), static_cast<double>(engine.weights->mapped)}};
  out.rows(Also::nobody, "host_weight_bytes", "gauge",
           "Weights on a CPU: copied to the process's memory, or read in mapped files.", weights);
}

}  // namespace

std::string Metrics::text(const EngineStats& engine, std::string_view model,
                          const ImageIntake::Counts& images) const {
  using Also = Exposition::Also;
  Exposition out(model);
  out.gauge(Also::vllm, "num_requests_running", "Sequences that hold device memory.",
            static_cast<double>(engine.running()));
  out.gauge(Also::vllm, "num_requests_waiting", "Sequences that wait to start.",
            static_cast<double>(engine.waiting));
  out.gauge(Also::nobody, "num_requests_swapped", "Sequences whose memory is on the host.",
            static_cast<double>(engine.swapped));
  out.gauge(Also::vllm, "kv_cache_usage_perc", "Share of KV pages in use, 0 to 1.",
            share(engine.pages));
  add_memory(engine, out);
  out.gauge(Also::nobody, "first_token_predicted_seconds",
            "Predicted wait of a prompt of 1024 tokens submitted now.",
            engine.first_token_ms / 1e3);
  out.counter(Also::vllm, "prompt_tokens_total", "Prompt tokens of ended sequences.",
              prompt_tokens_);
  out.counter(Also::vllm, "prompt_tokens_cached_total", "Of those, taken from the prefix cache.",
              cached_tokens_);
  out.counter(Also::vllm, "generation_tokens_total", "Generated tokens of ended sequences.",
              generated_tokens_);
  out.counter(Also::vllm, "prefix_cache_queries_total", "Prompt tokens looked up.",
              cache_ == CacheMode::off ? 0 : prompt_tokens_);
  out.counter(Also::vllm, "prefix_cache_hits_total", "Prompt tokens found.", cached_tokens_);
  out.counter(Also::vllm, "num_preemptions_total", "Sequences swapped out or started again.",
              engine.engine.swaps_out + engine.engine.recomputes);
  add_speculation(engine.engine, out);
  out.counter(Also::nobody, "passes_total", "Forward passes.", engine.engine.passes);
  out.counter(Also::nobody, "not_finite_total", "Sequences ended by NaN or infinity.",
              engine.engine.not_finite);
  out.counter(Also::nobody, "prefix_pages_evicted_total", "Pages taken back from the cache.",
              engine.prefix.pages_evicted);
  out.counter(Also::nobody, "prefix_pages_stored_total", "Pages moved to host memory.",
              engine.prefix.pages_stored);
  out.counter(Also::nobody, "prefix_pages_loaded_total", "Pages brought back from it.",
              engine.prefix.pages_loaded);
  add_images(images, out);
  add_media(engine.media, out);
  std::vector<Exposition::Sample> asked;
  for (const auto& [profile, count] : asked_)
    asked.emplace_back(label("profile", profile), static_cast<double>(count));
  out.rows(Also::nobody, "requests_total", "counter", "Sound requests, by profile.", asked);
  out.rows(Also::nobody, "tool_calls_total", "counter", "Calls of tools, by what became of them.",
           {{label("outcome", "complete"), static_cast<double>(calls_.complete)},
            {label("outcome", "malformed"), static_cast<double>(calls_.malformed)}});
  std::vector<Exposition::Sample> ends;
  for (const auto& [reason, count] : finished_)
    ends.emplace_back(label("finished_reason", reason), static_cast<double>(count));
  out.rows(Also::vllm, "request_success_total", "counter", "Ended sequences, by reason.", ends);
  std::vector<Exposition::Sample> refusals;
  for (const auto& [status, count] : refused_)
    refusals.emplace_back(label("status", concat(status)), static_cast<double>(count));
  out.rows(Also::nobody, "requests_refused_total", "counter", "Refused requests, by status.",
           refusals);
  out.histogram("time_to_first_token_seconds", "From submission.", first_token_);
  out.histogram("inter_token_latency_seconds", "Between tokens of a sequence.", inter_token_);
  out.histogram("e2e_request_latency_seconds", "From submission to the end.", whole_);
  out.histogram("request_prompt_tokens", "Prompt tokens of a sequence.", prompt_sizes_);
  out.histogram("request_generation_tokens", "Generated tokens of a sequence.", answer_sizes_);
  return out.take();
}

}  // namespace nibble
