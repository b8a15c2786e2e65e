// Generation: one request from admission to its last byte: submits its sequences, gathers or
// streams what the engine publishes, cancels when the client leaves. Lives on the server's thread.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "engine/engine.h"
#include "server/answer/answer_writer.h"
#include "server/answer/response_json.h"
#include "server/filters/held_answer.h"
#include "server/http/http.h"
#include "server/metrics.h"
#include "server/request/generation_request.h"

namespace nibble {

class Generation {
 public:
  /// `served` and `engine` must outlive it.
  Generation(const ServedModel& served, Engine& engine, GenerationRequest request,
             std::shared_ptr<HttpExchange> exchange, std::string request_id);

  /// Called with the whole answer of a request that has a stored_input(), once it is complete.
  using ResponseHook = std::function<void(const Generation&, const Json&)>;
  void on_response(ResponseHook hook) { response_hook_ = std::move(hook); }
  const StoredInput& stored_input() const { return *request_.stored_input; }

  /// Its answers pass the request's filters, asked by `panel`, which must outlive it; `changed` is
  /// called when a verdict has come, for the caller to flush(). Before start().
  void hold_for(FilterPanel& panel, std::function<void()> changed);

  /// Submits every sequence, or answers with the refusal and is done.
  void start();
  /// The ids of its sequences; empty if start() was refused.
  const std::vector<uint64_t>& ids() const { return ids_; }

  /// An event of one of its sequences.
  void take(EngineEvent event);
  /// Something was taken since the last flush().
  bool has_news() const { return news_; }
  /// After a batch of events: sends what has become certain; the answer when all is finished.
  void flush();
  /// Keeps a stream alive that has been silent since the last call. The first call sends nothing:
  /// an answer that has just begun is not silent, and may yet be refused with a status of its own.
  void ping();
  /// The client has gone.
  void abandon();
  /// Ends it with what it has; the engine's word for that comes later.
  void cancel();

  /// Nothing more will be sent.
  bool done() const { return done_; }
  /// Every sequence has ended.
  bool settled() const { return unfinished_ == 0; }
  /// For a log line: counts and reasons.
  TokenCounts counts() const;
  std::string outcome() const { return outcome_; }
  /// Calls of tools in all of its answers.
  Metrics::Calls calls() const;
  /// The status it was refused or failed with; 0: it was not.
  int error_status() const { return error_status_; }
  Api api() const { return request_.api; }
  uint64_t tenant() const { return request_.tenant; }
  /// The answer of a Response as far as it is, with a status of its own.
  Json so_far(std::string_view status) const;
  /// True if clients may call it so: by the answer's id or the request's.
  bool is_called(std::string_view id) const { return id == head_.id || id == request_id_; }

 private:
  struct Choice {
    explicit Choice(ChoiceDecoder made) : decoder(std::move(made)) {}
    ChoiceDecoder decoder;
    std::vector<PositionLogprobs> logprobs;  // not told yet, as the next three
    std::vector<int32_t> token_ids;
    std::vector<PositionLogprobs> prompt_logprobs;
    std::vector<PromptProgress> progress;
    int64_t tokens = 0;                // so far
    std::shared_ptr<HeldAnswer> held;  // empty: there are no filters
    std::optional<Finished> finished;
    bool prompt_told = false;
    bool end_told = false;
  };

  /// A refusal by the engine, with its prediction of when there will be room.
  ApiError refusal_of(const Error& error) const;
  void fail(const ApiError& error);
  void take_end(Choice& choice, Finished finished);
  void take_stop_token(Choice& choice);
  const std::vector<int32_t>& prompt_of(size_t index) const;
  bool prompt_logprobs_complete(size_t index) const;
  void cancel_rest();
  /// The events of a choice that may be shown since the last time; a verdict against it ends it.
  std::vector<OutputEvent> events_of(size_t index);
  /// All is said and judged.
  bool complete() const;
  void begin_stream();
  /// Tells the writer what became certain of a choice since the last time.
  void write_choice(size_t index);
  /// Facts about the prompt, once; false: they are still to come.
  bool write_prompt(size_t index);
  /// The end of an answer whose choices have ended.
  void finish();
  ChoiceEnd end_of(const Choice& choice) const;
  AnswerTimes times() const;
  /// True if facts about the text may be told: it has passed, or there is no filter.
  bool text_passed(const Choice& choice) const;
  /// The facts of tokens that were not told yet and may be.
  TokenFacts tokens_of(Choice& choice) const;
  bool shown(const OutputEvent& event) const;

  const ServedModel& served_;
  Engine& engine_;
  GenerationRequest request_;
  std::shared_ptr<HttpExchange> exchange_;
  AnswerHead head_;
  std::string request_id_;
  std::vector<uint64_t> ids_;
  std::vector<Choice> choices_;
  size_t unfinished_ = 0;
  std::unique_ptr<AnswerWriter> writer_;
  ResponseHook response_hook_;
  FilterPanel* panel_ = nullptr;
  std::function<void()> changed_;
  std::string pending_;  // SSE bytes of this flush; a whole answer drops them
  bool news_ = false;
  bool streaming_ = false;
  bool spoke_since_ping_ = true;
  bool done_ = false;
  bool cancelled_ = false;  // by cancel()
  using Clock = std::chrono::steady_clock;
  Clock::time_point submitted_, first_token_, last_token_;
  std::string outcome_;
  int error_status_ = 0;
};

}  // namespace nibble
