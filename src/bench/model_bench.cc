// Submits random sequences and reads the clock when their tokens are published.
#include "bench/model_bench.h"

#include <algorithm>
#include <chrono>
#include <random>

namespace nibble {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int32_t kSlackTokens = 64;  // generated while other sequences still begin

}  // namespace

struct ModelBench::Stream {
  uint64_t id = 0;
  int32_t tokens = 0;  // published
  Clock::time_point first;
  bool ended = false;
  Finished finished;
};

std::string model_test_name(const ModelTest& test) {
  std::string name = concat(test.kind == ModelTestKind::prompt ? "pp" : "tg", test.tokens);
  if (test.depth > 0) name += concat(" @ d", test.depth);
  return name;
}

int32_t context_of(const ModelTest& test) {
  return std::max(test.depth, 1) + test.tokens + kSlackTokens + test.batch;
}

Result<double> ModelBench::measure(const ModelTest& test) {
  depth_ = test.depth;
  TRY(fill(test));
  return test.kind == ModelTestKind::prompt ? measure_prompt(test) : measure_generation(test);
}

std::vector<int32_t> ModelBench::ids(const ModelTest& test, int32_t stream, int32_t tail) {
  std::vector<int32_t> prompt;
  const auto append = [&](int32_t count, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::uniform_int_distribution<int32_t> id(0, vocab_rows_ - 1);
    for (int32_t i = 0; i < count; ++i) prompt.push_back(id(random));
  };
  constexpr uint64_t kTails = uint64_t{1} << 32;
  append(test.depth, static_cast<uint64_t>(stream) + 1);
  append(tail, kTails + ++draws_);
  return prompt;
}

Result<void> ModelBench::submit(Stream& stream, std::vector<int32_t> prompt, int32_t max_tokens) {
  SequenceRequest request{.id = engine_.next_id(), .prompt = std::move(prompt)};
  request.max_tokens = max_tokens;
  request.sampling.temperature = 0.0;
  if (depth_ >= kPageTokens) request.cache.boundaries = {depth_};  // a state to start from
  stream = {.id = request.id};
  return engine_.submit(std::move(request));
}

Result<void> ModelBench::take(std::vector<Stream>& streams) {
  if (interrupted_()) return Error{ErrorCode::cancelled, "interrupted"};
  TRY(engine_.failure());
  constexpr std::chrono::milliseconds kPoll{50};
  const auto events = engine_.take_events(kPoll);
  const auto now = Clock::now();
  for (const EngineEvent& event : events) {
    const auto of = [&](uint64_t id) { return std::ranges::find(streams, id, &Stream::id); };
    if (const auto* fresh = std::get_if<NewTokens>(&event)) {
      const auto stream = of(fresh->id);
      if (stream == streams.end()) continue;
      if (stream->tokens == 0) stream->first = now;
      stream->tokens += static_cast<int32_t>(fresh->tokens.size());
    } else if (const auto* end = std::get_if<Finished>(&event)) {
      const auto stream = of(end->id);
      if (stream == streams.end()) continue;
      stream->ended = true;
      stream->finished = *end;
      if (end->reason == FinishReason::error) return Error{ErrorCode::corrupt, end->error};
    }
  }
  return {};
}

Result<void> ModelBench::drain(std::vector<Stream>& streams) {
  while (!std::ranges::all_of(streams, &Stream::ended)) TRY(take(streams));
  return {};
}

Result<void> ModelBench::fill(const ModelTest& test) {
  if (test.depth < kPageTokens) return {};
  std::vector<Stream> streams(static_cast<size_t>(test.batch));
  for (int32_t i = 0; i < test.batch; ++i)
    TRY(submit(streams[static_cast<size_t>(i)], ids(test, i, 1), 1));
  return drain(streams);
}

Result<double> ModelBench::measure_prompt(const ModelTest& test) {
  std::vector<Stream> streams(static_cast<size_t>(test.batch));
  std::vector<std::vector<int32_t>> prompts;
  for (int32_t i = 0; i < test.batch; ++i) prompts.push_back(ids(test, i, test.tokens));
  const auto begin = Clock::now();
  for (size_t i = 0; i < streams.size(); ++i) TRY(submit(streams[i], std::move(prompts[i]), 1));
  TRY(drain(streams));
  int64_t computed = 0;
  auto end = begin;
  for (const Stream& stream : streams) {
    if (stream.finished.cached_tokens < test.depth / kPageTokens * kPageTokens)
      return make_error(
          ErrorCode::no_memory,
          {.what = "the prefix cache",
           .expected = concat(test.depth, " tokens of each of ", test.batch, " sequences"),
           .found = concat(stream.finished.cached_tokens),
           .advice = "raise --prefix-snapshots or --kv-cache-memory-bytes"});
    computed += stream.finished.prompt_tokens - stream.finished.cached_tokens;
    end = std::max(end, stream.first);
  }
  return static_cast<double>(computed) / std::chrono::duration<double>(end - begin).count();
}

Result<double> ModelBench::measure_generation(const ModelTest& test) {
  std::vector<Stream> streams(static_cast<size_t>(test.batch));
  const int32_t most = test.tokens + kSlackTokens + test.batch;
  for (int32_t i = 0; i < test.batch; ++i)
    TRY(submit(streams[static_cast<size_t>(i)], ids(test, i, test.depth == 0 ? 1 : 0), most));
  const auto generating = [](const Stream& stream) { return stream.tokens > 0; };
  while (!std::ranges::all_of(streams, generating)) TRY(take(streams));
  const auto begin = Clock::now();
  std::vector<int32_t> before;
  for (const Stream& stream : streams) before.push_back(stream.tokens);
  const auto least_new = [&] {
    int32_t least = most;
    for (size_t i = 0; i < streams.size(); ++i)
      least = std::min(least, streams[i].tokens - before[i]);
    return least;
  };
  const auto any_ended = [&] { return std::ranges::any_of(streams, &Stream::ended); };
  while (least_new() < test.tokens && !any_ended()) TRY(take(streams));
  const auto end = Clock::now();
  int64_t generated = 0;
  for (size_t i = 0; i < streams.size(); ++i) generated += streams[i].tokens - before[i];
  for (const Stream& stream : streams)
    if (!stream.ended) engine_.cancel(stream.id);
  const bool enough = least_new() >= test.tokens;
  TRY(drain(streams));
  if (!enough)
    return make_error(ErrorCode::no_memory,
                      {.what = "a sequence of the test ended before all had generated",
                       .advice = "fewer sequences (-b), or more memory for the cache"});
  return static_cast<double>(generated) / std::chrono::duration<double>(end - begin).count();
}

}  // namespace nibble
