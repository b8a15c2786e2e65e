// stream_bench [--streams N] [--tokens N] [--pass-ms N] [--rounds N]: what serving costs beside the
// model, over a backend that says 'x' after a pause and computes nothing else. Three figures: the
// engine's own time in a step; the length of a step with the answers streamed over HTTP against the
// engine alone; CPU of the whole process per streamed token. The client is a process of its own.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "bench/processor_time.h"
#include "scripted.h"

namespace nibble {
namespace {

using Clock = std::chrono::steady_clock;

struct Settings {
  int streams = 32;
  int tokens = 500;
  int pass_ms = 3;
  int rounds = 5;
};

double microseconds(Clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

/// Knows how long its passes took.
class TimedBackend final : public testing::ScriptedBackend {
 public:
  explicit TimedBackend(int pass_ms) : ScriptedBackend({}, std::chrono::milliseconds(pass_ms)) {}
  Residual embed(const Batch& batch) override {
    begin_ = Clock::now();
    return ScriptedBackend::embed(batch);
  }
  HeadOutput head(const Batch& batch, Residual h) override {
    const HeadOutput output = ScriptedBackend::head(batch, h);
    spent += Clock::now() - begin_;
    return output;
  }
  Clock::duration spent = {};

 private:
  Clock::time_point begin_;
};

SequenceRequest request(uint64_t id, int tokens) {
  SequenceRequest made;
  made.id = id;
  for (int32_t i = 0; i < 40; ++i) made.prompt.push_back(static_cast<int32_t>(id + 7) % 250 + 1);
  made.max_tokens = tokens;
  made.sampling.temperature = 0.0;
  return made;
}

/// Microseconds of a decoding step of all streams outside the backend: choosing rows and building
/// the batch, sampling 300 logits a row, ending the step.
double step_overhead(const Settings& s) {
  TimedBackend backend(0);
  const EngineSettings settings = bench::engine_settings(s.streams, s.tokens);
  const ModelConfig config = testing::model_config();
  CHECK(backend.reserve(settings.pools).ok());
  EngineCore core(backend, config,
                  Sampler(config.vocab_rows, Sampler::all_sampleable(config.vocab_rows)), settings);
  for (int i = 0; i < s.streams; ++i) core.submit(request(static_cast<uint64_t>(i), s.tokens));
  for (int warm = 0; warm < 50; ++warm) core.step();
  const int steps = s.tokens - 100;
  backend.spent = {};
  const auto begin = Clock::now();
  for (int i = 0; i < steps; ++i) core.step();
  const auto all = Clock::now() - begin;
  CHECK(core.live_count() == s.streams, "streams ended early");
  return microseconds(all - backend.spent) / steps;
}

struct Run {
  double step_us = 0;           // from the first token of the last stream to the end, per token
  double cpu_per_token_us = 0;  // of this process
};

/// Wall and CPU time from all streams having begun to the first end.
class Span {
 public:
  void begin() { wall_ = Clock::now(), cpu_ = 1e6 * cpu_seconds(); }
  Run end(int64_t steps, int streams) const {
    return {
        .step_us = microseconds(Clock::now() - wall_) / static_cast<double>(steps),
        .cpu_per_token_us = (1e6 * cpu_seconds() - cpu_) / static_cast<double>(steps) / streams};
  }

 private:
  Clock::time_point wall_;
  double cpu_ = 0;
};

Run engine_alone(const Settings& s) {
  Engine::Options options{.settings = bench::engine_settings(s.streams, s.tokens)};
  auto engine = Engine::start(std::make_unique<testing::ScriptedBackend>(
                                  std::vector<int32_t>{}, std::chrono::milliseconds(s.pass_ms)),
                              testing::model_config(), std::move(options));
  CHECK(engine.ok());
  for (int i = 0; i < s.streams; ++i)
    CHECK(engine.value()->submit(request(engine.value()->next_id(), s.tokens)).ok());
  std::vector<int64_t> said(static_cast<size_t>(s.streams) + 1);
  Span span;
  int64_t total = 0;
  for (int begun = 0, ended = 0; ended == 0;)
    for (const EngineEvent& event : engine.value()->take_events(std::chrono::milliseconds(100))) {
      const auto* fresh = std::get_if<NewTokens>(&event);
      ended += fresh == nullptr ? 1 : 0;
      if (fresh == nullptr) continue;
      const bool first = said.at(fresh->id) == 0;
      said[fresh->id] += static_cast<int64_t>(fresh->tokens.size());
      if (begun == s.streams) total += static_cast<int64_t>(fresh->tokens.size());
      begun += first ? 1 : 0;
      if (first && begun == s.streams) span.begin();
    }
  return span.end(total / s.streams, s.streams);
}

/// Asks for all streams at once and reads them. Tells 'b' when all have begun, then the tokens that
/// came from then to the first end.
void read_streams(const Settings& s, uint16_t port, const bench::Client& self) {
  std::vector<int> sockets;
  for (int i = 0; i < s.streams; ++i) sockets.push_back(bench::open_stream(port, s.tokens, i));
  std::vector<bool> begun(sockets.size());
  size_t started = 0;
  int64_t tokens = 0;
  std::vector<pollfd> polls;
  for (const int socket : sockets) polls.push_back({.fd = socket, .events = POLLIN, .revents = 0});
  for (bool ended = false; !ended;) {
    CHECK(::poll(polls.data(), polls.size(), 10000) > 0, "the server is silent");
    for (size_t i = 0; i < polls.size(); ++i) {
      if ((polls[i].revents & POLLIN) == 0) continue;
      char bytes[65536];
      const ssize_t size = ::recv(polls[i].fd, bytes, sizeof bytes, 0);
      CHECK(size > 0, "the server hung up");
      const std::string_view text(bytes, static_cast<size_t>(size));
      ended |= text.find("[DONE]") != std::string_view::npos;
      const int pieces = bench::count_pieces(text);
      if (started == sockets.size()) tokens += pieces;
      if (pieces == 0 || begun[i]) continue;
      begun[i] = true;
      if (++started == sockets.size()) self.tell('b');
    }
  }
  self.tell(tokens);
}

Run over_http(const Settings& s) {
  const bench::Client client(
      [&](uint16_t port, const bench::Client& self) { read_streams(s, port, self); });
  const bench::Running server(
      bench::start_server(bench::engine_settings(s.streams, s.tokens), s.pass_ms));
  client.come(server.port());
  CHECK(client.hear<char>() == 'b');
  Span span;
  span.begin();
  const auto tokens = client.hear<int64_t>();
  return span.end(tokens / s.streams, s.streams);
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void print(const char* name, const std::vector<double>& values, const char* unit) {
  const auto [least, most] = std::ranges::minmax(values);
  std::printf("%-44s %10.1f %s (%.1f-%.1f)\n", name, median(values), unit, least, most);
}

bool parse(int count, char** words, Settings& s) {
  for (int i = 1; i + 1 < count; i += 2) {
    const int value = std::atoi(words[i + 1]);
    int* slot = std::strcmp(words[i], "--streams") == 0   ? &s.streams
                : std::strcmp(words[i], "--tokens") == 0  ? &s.tokens
                : std::strcmp(words[i], "--pass-ms") == 0 ? &s.pass_ms
                : std::strcmp(words[i], "--rounds") == 0  ? &s.rounds
                                                          : nullptr;
    if (slot == nullptr || value < 1) return false;
    *slot = value;
  }
  return count % 2 == 1 && s.tokens >= 200 && s.streams <= 256;
}

int run(const Settings& s) {
  std::vector<double> overhead, alone, http, ratio, cpu_alone, cpu_http;
  for (int round = 0; round < s.rounds; ++round) {
    const Run engine = engine_alone(s);
    const Run served = over_http(s);
    overhead.push_back(step_overhead(s));
    alone.push_back(engine.step_us), http.push_back(served.step_us);
    ratio.push_back(100.0 * (served.step_us / engine.step_us - 1.0));
    cpu_alone.push_back(engine.cpu_per_token_us), cpu_http.push_back(served.cpu_per_token_us);
  }
  std::printf("%d streams of %d tokens, passes of %d ms, medians of %d rounds (least-most)\n",
              s.streams, s.tokens, s.pass_ms, s.rounds);
  print("engine's own time in a step", overhead, "us");
  print("step, engine alone", alone, "us");
  print("step, streamed over HTTP", http, "us");
  print("longer by", ratio, "%");
  print("CPU per token, engine alone", cpu_alone, "us");
  print("CPU per token, streamed over HTTP", cpu_http, "us");
  return 0;
}

}  // namespace
}  // namespace nibble

int main(int count, char** words) {
  nibble::Settings settings;
  if (nibble::parse(count, words, settings)) return nibble::run(settings);
  std::fprintf(stderr,
               "usage: stream_bench [--streams 1..256] [--tokens 200..] [--pass-ms N] "
               "[--rounds N]\n");
  return 2;
}
