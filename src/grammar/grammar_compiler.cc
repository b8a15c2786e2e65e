// Callers compile, each on its thread, in a child process each where there is a worker. Results are
// kept, refusals too, so that what was refused once stays refused; the least recently used go
// first.
#include "grammar/grammar_compiler.h"

#include <condition_variable>
#include <list>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "grammar/compiled_bytes.h"
#include "grammar/compiled_grammar.h"
#include "grammar/schema_check.h"
#include "grammar/structure_builder.h"
#include "grammar/structure_process.h"

namespace nibble {

namespace {

/// A text that differs for different sources.
std::string key_of(const GrammarSource& source) { return bytes_of(source); }

Error refusal(std::string_view what, std::string_view why) {
  return make_error(ErrorCode::invalid_argument, {.what = what, .found = why});
}

Error too_slow(const GrammarLimits& limits) {
  return make_error(ErrorCode::invalid_argument,
                    {.what = "the structure asked for takes too long to compile",
                     .expected = concat("at most ", limits.time_max.count(), " ms of a processor"),
                     .advice = "make it simpler"});
}

Error too_much_memory(const GrammarLimits& limits) {
  return make_error(ErrorCode::invalid_argument,
                    {.what = "the structure asked for takes too much memory to compile",
                     .expected = concat("at most ", limits.memory_bytes_max, " bytes"),
                     .advice = "make it simpler: fewer repetitions with counts, shorter patterns"});
}

Error crashed() {
  return make_error(ErrorCode::invalid_argument,
                    {.what = "the structure asked for cannot be compiled",
                     .found = "that the compiler ended before it was done",
                     .advice = "make it simpler: fewer levels"});
}

Result<void> check(const GrammarSource& source, const GrammarLimits& limits) {
  size_t bytes = source.text.size();
  for (const std::string& choice : source.choices) bytes += choice.size();
  for (const CallableTool& tool : source.tools) bytes += tool.parameters.dump().size();
  if (source.choices.size() > limits.choices_max)
    return make_error(ErrorCode::invalid_argument,
                      {.what = "the choice asked for is too large",
                       .expected = concat("at most ", limits.choices_max, " texts"),
                       .found = concat(source.choices.size())});
  if (bytes > limits.text_bytes_max)
    return make_error(ErrorCode::invalid_argument,
                      {.what = "the structure asked for is too large",
                       .expected = concat("at most ", limits.text_bytes_max, " bytes"),
                       .found = concat(bytes)});
  if (source.kind == GrammarSource::Kind::choice && source.choices.empty())
    return refusal("a choice", "nothing to choose from");
  if (source.kind == GrammarSource::Kind::json_schema) {
    const Json schema = TRY(parse_json(source.text, "the schema"));
    TRY(check_schema(schema, limits.schema));
  }
  for (const CallableTool& tool : source.tools)
    if (!tool.parameters.is_null())
      if (const auto sound = check_schema(tool.parameters, limits.schema); !sound.ok())
        return refusal(concat("parameters of the function ", tool.name), sound.error().message);
  return {};
}

}  // namespace

struct GrammarCompiler::State {
  using Compiled = Result<std::shared_ptr<const Grammar>>;
  struct Kept {
    std::string key;
    Compiled result;
    size_t bytes = 0;
  };

  void prepare();
  Compiled make(const GrammarSource& source, const Abandoned& abandoned);
  Compiled taken(StructureProcess::Answer answer) const;
  void keep(const std::string& key, const Compiled& result);
  /// Finds what is kept, or nothing once it is the caller's to make. Waits while another makes it.
  /// Errors: cancelled.
  std::optional<Compiled> wait_or_begin(const std::string& key, const Abandoned& abandoned);
  void end(const std::string& key, const Compiled& result);

  std::function<Vocabulary()> vocabulary;
  GrammarLimits limits;
  std::vector<std::string> command;  // of the worker; empty: there is none
  std::once_flag prepared;
  std::unique_ptr<const StructureBuilder> builder;
  std::unique_ptr<StructureProcess> process;

  std::mutex mutex;      // guards everything below
  std::list<Kept> kept;  // latest first
  std::unordered_map<std::string, std::list<Kept>::iterator> by_key;
  std::unordered_set<std::string> begun;  // those that a thread makes
  std::condition_variable ended;
  size_t kept_bytes = 0;
};

void GrammarCompiler::State::prepare() {
  Vocabulary words = vocabulary();
  if (!command.empty())
    process = std::make_unique<StructureProcess>(
        command,
        bytes_of(WorkerSetup{.vocabulary = words,
                             .looks_max = limits.looks_max,
                             .memory_bytes_max = limits.memory_bytes_max,
                             .time_max_ms = static_cast<uint64_t>(limits.time_max.count())}));
  builder = std::make_unique<const StructureBuilder>(std::move(words), limits.mask_time_max);
}

GrammarCompiler::State::Compiled GrammarCompiler::State::taken(
    StructureProcess::Answer answer) const {
  switch (answer.end) {
    case CompileEnd::refused:
      return Error{ErrorCode::invalid_argument, std::move(answer.bytes)};
    case CompileEnd::no_memory:
      return too_much_memory(limits);
    case CompileEnd::no_time:
      return too_slow(limits);
    case CompileEnd::done:
      if (auto made = compiled_of(answer.bytes, builder->tokenizer()); made.ok())
        return builder->with_line_breaks(std::move(made).value());
      break;
    case CompileEnd::crashed:
      break;
  }
  return crashed();
}

GrammarCompiler::State::Compiled GrammarCompiler::State::make(const GrammarSource& source,
                                                              const Abandoned& abandoned) {
  std::call_once(prepared, [this] { prepare(); });
  if (process == nullptr) return builder->build(source, limits.looks_max);
  return taken(TRY(process->compile(bytes_of(source), abandoned)));
}

void GrammarCompiler::State::keep(const std::string& key, const Compiled& result) {
  constexpr size_t kOfAnEntry = 256;
  const size_t held =
      result.ok() ? memory_of(result.value()->compiled) : result.error().message.size();
  const size_t bytes = held + 2 * key.size() + kOfAnEntry;
  kept.push_front({.key = key, .result = result, .bytes = bytes});
  by_key[key] = kept.begin();
  kept_bytes += bytes;
  while (kept_bytes > limits.cache_bytes_max) {
    kept_bytes -= kept.back().bytes;
    by_key.erase(kept.back().key);
    kept.pop_back();
  }
}

std::optional<GrammarCompiler::State::Compiled> GrammarCompiler::State::wait_or_begin(
    const std::string& key, const Abandoned& abandoned) {
  constexpr std::chrono::milliseconds kAskEvery{10};
  std::unique_lock lock(mutex);
  while (true) {
    if (const auto found = by_key.find(key); found != by_key.end()) {
      kept.splice(kept.begin(), kept, found->second);
      return found->second->result;
    }
    if (!begun.contains(key)) {
      begun.insert(key);
      return std::nullopt;
    }
    ended.wait_for(lock, kAskEvery);
    if (abandoned && abandoned())
      return make_error(ErrorCode::cancelled, {.what = "the client has left"});
  }
}

void GrammarCompiler::State::end(const std::string& key, const Compiled& result) {
  {
    const std::lock_guard lock(mutex);
    begun.erase(key);
    if (result.ok() || result.error().code == ErrorCode::invalid_argument) keep(key, result);
  }
  ended.notify_all();
}

GrammarCompiler::GrammarCompiler(std::function<Vocabulary()> vocabulary,
                                 const GrammarLimits& limits, std::vector<std::string> worker)
    : state_(std::make_unique<State>()) {
  state_->vocabulary = std::move(vocabulary);
  state_->limits = limits;
  state_->command = std::move(worker);
}

GrammarCompiler::~GrammarCompiler() = default;

Result<std::shared_ptr<const Grammar>> GrammarCompiler::compile(const GrammarSource& source,
                                                                const Abandoned& abandoned) {
  TRY(check(source, state_->limits));
  const std::string key = key_of(source);
  if (auto known = state_->wait_or_begin(key, abandoned)) return *std::move(known);
  State::Compiled made = make_error(ErrorCode::no_memory, {.what = "no memory for a structure"});
  try {
    made = state_->make(source, abandoned);
  } catch (const std::bad_alloc&) {  // only without a worker, or of this process's own
  }
  state_->end(key, made);
  return made;
}

size_t GrammarCompiler::kept_bytes() const {
  const std::lock_guard lock(state_->mutex);
  return state_->kept_bytes;
}

pid_t GrammarCompiler::worker() const {
  return state_->process == nullptr ? -1 : state_->process->worker();
}

}  // namespace nibble
