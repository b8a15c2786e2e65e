// Engine: one thread that owns the core and the backend. Others talk to it through a bounded inbox
// and a bounded outbox of plain messages; ids and tokens only.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "engine/cache/prefix_store.h"
#include "engine/engine_core.h"
#include "engine/engine_stats.h"

namespace nibble {

/// finish_running: live sequences run to their end. cancel_running: they end as cancelled.
enum class Shutdown : uint8_t { finish_running, cancel_running };

class Engine {
 public:
  struct Options {
    EngineSettings settings;
    std::vector<uint32_t> sampleable;  // see Sampler; empty: all
    /// Called on a thread of the engine when the outbox stops being empty, and when the engine
    /// fails; must not block.
    std::function<void()> on_events;
    size_t outbox_max = 65536;  // events; a consumer that lets it fill stops the engine
    /// Pinned prefixes of earlier processes are taken from here, new ones saved here. May be empty.
    std::shared_ptr<PrefixStore> store;
    double sleep_idle_ms = 0.0;  // the backend sleeps after so long without work; 0: never
    /// A step that takes longer will not end: every sequence ends with that as its error, and the
    /// engine without its thread, which keeps the backend for as long as it computes. 0: never.
    std::chrono::duration<double> step_deadline{0.0};
    /// One line about a prefix that could not be saved or taken. Any thread.
    std::function<void(std::string)> report;
  };

  /// Reserves the pools of `backend`, holds it to the plan and starts the thread. Errors: those of
  /// Backend::reserve; internal if what it holds then is not what settings.planned says.
  static Result<std::unique_ptr<Engine>> start(std::unique_ptr<Backend> backend, ModelConfig config,
                                               Options options);
  /// As shutdown(cancel_running), then wait_stopped(). A thread that never ends is left alone.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // From any thread.
  /// A new id for SequenceRequest::id.
  uint64_t next_id();
  /// Errors: those of EngineCore::admissible; no_space when waiting_max sequences or
  /// waiting_tokens_max of their prompt tokens already wait, or when what waits is predicted to
  /// take longer than the request's deadline allows; cancelled after shutdown; that of failure().
  Result<void> submit(SequenceRequest request);
  /// Milliseconds until a prompt of middling size, submitted now, would see its first token: when
  /// to come again after `no_space`.
  double retry_after_ms() const;
  /// Takes effect within one step; the sequence still ends with one Finished.
  void cancel(uint64_t id);
  void shutdown(Shutdown how);
  /// Puts the backend to sleep (what caches hold is lost), or wakes it; requests wake it too.
  /// `done` is called on a thread of the engine, or on this one once it has stopped, and must not
  /// block. Errors: unsupported while sequences are live; those of Backend::sleep and wake;
  /// cancelled or failure() once it has stopped.
  enum class Rest : uint8_t { sleeping, awake };
  void rest(Rest wanted, std::function<void(Result<void>)> done);
  Rest resting() const;
  /// True if nothing runs any more: after shutdown, with nothing live, or after a failure.
  bool stopped() const;
  /// After shutdown: until stopped(), at most for the step deadline.
  void wait_stopped() const;
  /// Errors: that of Backend::alive(), or of a step beyond its deadline, after which the engine
  /// ended every sequence.
  Result<void> failure() const;

  /// Everything published since the last call; waits up to `wait` for the first event.
  std::vector<EngineEvent> take_events(std::chrono::milliseconds wait = {});

  const Backend& backend() const;

  /// The figures of the last step.
  EngineStats stats() const;

 private:
  struct State;

 public:
  /// For start() alone: State is private.
  explicit Engine(std::shared_ptr<State> state);

 private:
  std::shared_ptr<State> state_;  // shared with its thread
};

}  // namespace nibble
