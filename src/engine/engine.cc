// The thread, its inbox and its outbox; what a step does is in engine_core.cc.
#include "engine/engine.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>

#include "engine/cache/prefix_writer.h"
#include "engine/reserved_check.h"
#include "engine/step_watch.h"

namespace nibble {

struct Engine::State {
  struct RestRequest {
    Rest wanted = Rest::awake;
    std::function<void(Result<void>)> done;
  };
  /// Submitted and not yet published as finished.
  struct Live {
    int32_t prompt_tokens = 0;
    int32_t published = 0;  // tokens
  };
  State(std::unique_ptr<Backend> owned, ModelConfig config, Options given)
      : backend(std::move(owned)),
        options(std::move(given)),
        core(*backend, config, Sampler(config.vocab_rows, options.sampleable), options.settings),
        watch(options.step_deadline, [this] { give_up(); }) {}

  void run();
  void give_up();
  void stop(std::unique_lock<std::mutex>& lock);
  Result<void> end_of_rests() const;
  void report(const std::string& line);
  void restore_prefixes();
  bool take_inbox();
  void wait_for_work(std::unique_lock<std::mutex>& lock);
  void change_rest(std::unique_lock<std::mutex>& lock);
  void carry_out(const RestRequest& request, std::unique_lock<std::mutex>& lock);
  Result<void> change_to(Rest wanted);
  void notice_failure();
  void predict();
  EngineStats count_stats() const;
  void publish(std::vector<EngineEvent> events);

  std::unique_ptr<Backend> backend;
  Options options;
  EngineCore core;  // touched by the engine thread only, but for admissible(), which is const

  std::mutex mutex;  // guards everything below
  std::condition_variable inbox_changed;
  std::condition_variable outbox_changed;
  std::vector<SequenceRequest> submitted;
  std::vector<uint64_t> cancelled;
  std::vector<RestRequest> rests;
  Rest resting = Rest::awake;
  std::optional<Shutdown> shutdown;
  std::unordered_map<uint64_t, Live> live;
  int64_t waiting_tokens = 0;  // tokens of prompts submitted and not yet started
  std::vector<EngineEvent> outbox;
  bool stopped = false;
  Result<void> failure;
  EngineStats stats;

  std::atomic<uint64_t> id_counter{1};
  std::atomic<double> retry_after_ms{0.0};
  std::atomic<double> wait_ms{0.0};      // time until the first token of the shortest prompt
  std::mutex report_mutex;               // guards options.report
  std::unique_ptr<PrefixWriter> writer;  // ends before options.store
  StepWatch watch;
  std::thread thread;
};

/// The serving loop: read the inbox, one pass, publish.
void Engine::State::run() {
  while (take_inbox()) {
    watch.begin();
    std::vector<EngineEvent> events = core.step();
    if (!watch.end()) return;
    notice_failure();
    publish(std::move(events));
    predict();
  }
  std::unique_lock lock(mutex);
  stop(lock);
}

/// On the watch's thread, while the engine's may be in its step for ever: the core is not touched,
/// and nothing that the step still gives is published.
void Engine::State::give_up() {
  std::unique_lock lock(mutex);
  if (failure.ok())
    failure = make_error(
        ErrorCode::io, {.what = concat("a pass of the ", backend->name(), " backend has not ended"),
                        .expected = concat("an end within ", options.step_deadline.count(), " s"),
                        .advice = "start again; --step-deadline allows more time"});
  for (const auto& [id, sequence] : std::exchange(live, {}))
    outbox.push_back(Finished{.id = id,
                              .reason = FinishReason::error,
                              .error = failure.error().message,
                              .prompt_tokens = sequence.prompt_tokens,
                              .completion_tokens = sequence.published});
  stop(lock);
}

/// From here on nothing runs. Opens the lock.
void Engine::State::stop(std::unique_lock<std::mutex>& lock) {
  stopped = true;
  const std::vector<RestRequest> unanswered = std::exchange(rests, {});
  const Result<void> outcome = end_of_rests();
  const bool failed = !failure.ok();
  lock.unlock();
  outbox_changed.notify_all();
  for (const RestRequest& request : unanswered) request.done(outcome);
  if (failed && options.on_events) options.on_events();
}

/// The result of rest() for an engine that has stopped.
Result<void> Engine::State::end_of_rests() const {
  if (!failure.ok()) return failure;
  return make_error(ErrorCode::cancelled, {.what = "the engine is shutting down"});
}

/// From here on nothing is admitted; what was has been or will be ended by the core.
void Engine::State::notice_failure() {
  const std::lock_guard lock(mutex);
  if (failure.ok()) failure = backend->alive();
}

/// One line for who runs the engine, as long as there is one.
void Engine::State::report(const std::string& line) {
  const std::lock_guard lock(report_mutex);
  if (options.report) options.report(line);
}

/// Restores the prefixes that earlier processes pinned. One that does not fit or cannot be read is
/// reported and left out.
void Engine::State::restore_prefixes() {
  if (!options.store || options.settings.cache == CacheMode::off) return;
  for (const PrefixStore::Dropped& dropped : options.store->dropped()) report(dropped.message);
  for (const PrefixStore::Entry& entry : options.store->entries()) {
    const auto prefix = options.store->load(entry);
    if (!prefix.ok())
      report(prefix.error().message);
    else if (core.memory().cache().restore(prefix.value(), core.now_ms()) ==
             PrefixCache::Restore::no_room)
      report(concat(entry.file.string(), ": no host memory for its ", entry.tokens,
                    " tokens; raise --host-cache-memory-bytes"));
  }
  writer = std::make_unique<PrefixWriter>(*options.store,
                                          [this](const std::string& line) { report(line); });
  core.memory().on_pinned([this](PrefixBytes prefix) {
    if (backend->alive().ok()) writer->save(std::move(prefix));
  });
}

EngineStats Engine::State::count_stats() const {
  const SequenceMemory& memory = core.memory();
  const PrefixCache& cache = memory.cache();
  const auto pool = [](int32_t available, int32_t size) {
    return EngineStats::Pool{.used = size - available, .total = size};
  };
  const PoolSizes& sizes = options.settings.pools;
  const auto phases = core.count_phases();
  const auto in = [&](Phase phase) { return phases[static_cast<size_t>(phase)]; };
  return {.waiting = in(Phase::waiting),
          .prefill = in(Phase::prefill),
          .decode = in(Phase::decode),
          .swapped = in(Phase::swapped),
          .pages = pool(cache.available_pages(), sizes.pages),
          .slots = pool(cache.available_slots(), sizes.state_slots),
          .host_pages = pool(cache.available_host_pages(), sizes.host_pages),
          .host_slots = pool(cache.available_host_slots(), sizes.host_slots),
          .engine = core.counters(),
          .prefix = cache.counters(),
          .media = core.media_counters(),
          .weights = backend->host_weights(),
          .first_token_ms = retry_after_ms};
}

void Engine::State::predict() {
  constexpr int32_t kMiddlingPrompt = 1024;
  retry_after_ms = core.first_token_ms(kMiddlingPrompt);
  wait_ms = core.idle() ? 0.0 : core.first_token_ms(1);
  const int64_t tokens = core.waiting_tokens();
  const EngineStats counted = count_stats();
  const std::lock_guard lock(mutex);
  stats = counted;
  waiting_tokens = tokens;
  for (const SequenceRequest& request : submitted)
    waiting_tokens += static_cast<int64_t>(request.prompt.size());
}

/// Waits for work when idle; false when it is time to end.
bool Engine::State::take_inbox() {
  if (core.idle() && options.settings.integrity != IntegrityChecks::off) core.check_integrity();
  std::unique_lock lock(mutex);
  wait_for_work(lock);
  change_rest(lock);
  for (SequenceRequest& request : submitted) core.submit(std::move(request));
  submitted.clear();
  for (const uint64_t id : cancelled) core.cancel(id);
  cancelled.clear();
  // A backend that could not wake runs nothing; core.step() then only ends what was cancelled.
  if (shutdown == Shutdown::cancel_running || resting == Rest::sleeping) core.cancel_all();
  return (!shutdown && failure.ok()) || !live.empty();
}

/// Sleeps, if it may, when nothing comes for long.
void Engine::State::wait_for_work(std::unique_lock<std::mutex>& lock) {
  const auto work = [&] {
    return !core.idle() || !submitted.empty() || !cancelled.empty() || !rests.empty() ||
           shutdown.has_value() || !failure.ok();
  };
  if (options.sleep_idle_ms <= 0.0 || resting == Rest::sleeping)
    return inbox_changed.wait(lock, work);
  const auto wait = std::chrono::duration<double, std::milli>(options.sleep_idle_ms);
  if (inbox_changed.wait_for(lock, wait, work)) return;
  rests.push_back({.wanted = Rest::sleeping, .done = [this](const Result<void>& outcome) {
                     if (!outcome.ok()) report(outcome.error().message);
                     if (!outcome.ok()) options.sleep_idle_ms = 0.0;
                   }});
}

/// Carries out what rest() asked for, then wakes the backend for requests. Both may come while the
/// lock is open, so it goes on until there is neither.
void Engine::State::change_rest(std::unique_lock<std::mutex>& lock) {
  bool woke = true;
  while (woke) {
    for (const RestRequest& request : std::exchange(rests, {})) carry_out(request, lock);
    if (resting == Rest::sleeping && !submitted.empty())
      carry_out({.wanted = Rest::awake,
                 .done =
                     [&](const Result<void>& outcome) {
                       woke = outcome.ok();
                       if (!woke) report(outcome.error().message);
                     }},
                lock);
    else if (rests.empty())
      return;
  }
}

void Engine::State::carry_out(const RestRequest& request, std::unique_lock<std::mutex>& lock) {
  const bool busy = !submitted.empty() && request.wanted == Rest::sleeping;
  const bool change = request.wanted != resting;
  lock.unlock();
  Result<void> outcome;
  if (change)
    outcome = busy ? make_error(ErrorCode::unsupported,
                                {.what = "sleep", .expected = "no live requests", .found = "some"})
                   : change_to(request.wanted);
  lock.lock();
  if (outcome.ok()) resting = request.wanted;
  lock.unlock();
  request.done(std::move(outcome));
  lock.lock();
}

Result<void> Engine::State::change_to(Rest wanted) {
  if (wanted == Rest::awake) {
    TRY(backend->wake());
    return check_reserved(*backend, options.settings, "after waking");
  }
  if (!core.idle())
    return make_error(
        ErrorCode::unsupported,
        {.what = "sleep", .expected = "no live requests", .found = concat(core.live_count())});
  core.forget_caches();
  return backend->sleep();
}

void Engine::State::publish(std::vector<EngineEvent> events) {
  if (events.empty()) return;
  std::unique_lock lock(mutex);
  outbox_changed.wait(lock, [&] {
    return outbox.size() < options.outbox_max || shutdown == Shutdown::cancel_running;
  });
  const bool was_empty = outbox.empty();
  for (EngineEvent& event : events) {
    if (const auto* fresh = std::get_if<NewTokens>(&event))
      live[fresh->id].published += static_cast<int32_t>(fresh->tokens.size());
    else if (const auto* end = std::get_if<Finished>(&event))
      live.erase(end->id);
    outbox.push_back(std::move(event));
  }
  lock.unlock();
  outbox_changed.notify_all();
  if (was_empty && options.on_events) options.on_events();
}

Result<std::unique_ptr<Engine>> Engine::start(std::unique_ptr<Backend> backend, ModelConfig config,
                                              Options options) {
  TRY(backend->reserve(options.settings.pools));
  TRY(check_reserved(*backend, options.settings, "at start"));
  backend->outlive_device();
  if (options.sampleable.empty()) options.sampleable = Sampler::all_sampleable(config.vocab_rows);
  auto state = std::make_shared<State>(std::move(backend), std::move(config), std::move(options));
  state->restore_prefixes();
  state->thread = std::thread([state] { state->run(); });
  return std::make_unique<Engine>(std::move(state));
}

Engine::Engine(std::shared_ptr<State> state) : state_(std::move(state)) {}

Engine::~Engine() {
  shutdown(Shutdown::cancel_running);
  wait_stopped();
  state_->watch.close();
  if (state_->watch.overdue()) {
    const std::lock_guard lock(state_->report_mutex);
    state_->options.report = nullptr;
    state_->thread.detach();
  } else {
    state_->thread.join();
  }
}

uint64_t Engine::next_id() { return state_->id_counter.fetch_add(1); }

Result<void> Engine::submit(SequenceRequest request) {
  TRY(state_->core.admissible(request));
  std::lock_guard lock(state_->mutex);
  TRY(Result<void>(state_->failure));
  if (state_->shutdown)
    return make_error(ErrorCode::cancelled, {.what = "the engine is shutting down"});
  const EngineSettings& settings = state_->options.settings;
  const int32_t live_max = settings.sequences_max + settings.waiting_max;
  if (std::ssize(state_->live) >= live_max)
    return make_error(ErrorCode::no_space, {.what = "the queue is full",
                                            .expected = concat("at most ", live_max, " sequences"),
                                            .advice = "try again later"});
  const double deadline_ms = request.urgency.deadline_ms;
  const double left_ms = deadline_ms - state_->core.now_ms();
  if (deadline_ms > 0.0 && !state_->live.empty() && left_ms < state_->wait_ms)
    return make_error(
        ErrorCode::no_space,
        {.what = "the queue is too long for the request's own time limit",
         .expected = concat("a first token within ", static_cast<int64_t>(left_ms), " ms"),
         .found = concat("about ", static_cast<int64_t>(state_->wait_ms), " ms of waiting"),
         .advice = "try again later or allow more time"});
  const auto tokens = static_cast<int64_t>(request.prompt.size());
  // One prompt may always wait, however long.
  if (state_->waiting_tokens > 0 && state_->waiting_tokens + tokens > settings.waiting_tokens_max)
    return make_error(
        ErrorCode::no_space,
        {.what = "the queue is full",
         .expected = concat("at most ", settings.waiting_tokens_max, " prompt tokens waiting"),
         .found = concat(state_->waiting_tokens, " and ", tokens, " more"),
         .advice = "try again later"});
  state_->waiting_tokens += tokens;
  state_->live[request.id].prompt_tokens = static_cast<int32_t>(tokens);
  state_->submitted.push_back(std::move(request));
  state_->inbox_changed.notify_one();
  return {};
}

double Engine::retry_after_ms() const { return state_->retry_after_ms; }

void Engine::cancel(uint64_t id) {
  std::lock_guard lock(state_->mutex);
  state_->cancelled.push_back(id);
  state_->inbox_changed.notify_one();
}

void Engine::shutdown(Shutdown how) {
  std::lock_guard lock(state_->mutex);
  if (state_->shutdown != Shutdown::cancel_running) state_->shutdown = how;
  state_->inbox_changed.notify_one();
  state_->outbox_changed.notify_all();
}

void Engine::rest(Rest wanted, std::function<void(Result<void>)> done) {
  std::unique_lock lock(state_->mutex);
  if (state_->stopped) {
    const Result<void> outcome = state_->end_of_rests();
    lock.unlock();
    return done(outcome);
  }
  state_->rests.push_back({.wanted = wanted, .done = std::move(done)});
  state_->inbox_changed.notify_one();
}

Engine::Rest Engine::resting() const {
  std::lock_guard lock(state_->mutex);
  return state_->resting;
}

bool Engine::stopped() const {
  std::lock_guard lock(state_->mutex);
  return state_->stopped;
}

void Engine::wait_stopped() const {
  std::unique_lock lock(state_->mutex);
  state_->outbox_changed.wait(lock, [&] { return state_->stopped; });
}

Result<void> Engine::failure() const {
  const std::lock_guard lock(state_->mutex);
  return state_->failure;
}

std::vector<EngineEvent> Engine::take_events(std::chrono::milliseconds wait) {
  std::unique_lock lock(state_->mutex);
  state_->outbox_changed.wait_for(lock, wait,
                                  [&] { return !state_->outbox.empty() || state_->stopped; });
  std::vector<EngineEvent> events = std::exchange(state_->outbox, {});
  state_->outbox_changed.notify_all();
  return events;
}

EngineStats Engine::stats() const {
  const std::lock_guard lock(state_->mutex);
  return state_->stats;
}

const Backend& Engine::backend() const { return *state_->backend; }

}  // namespace nibble
