// The event loop of a load test.
#include "bench/load_client.h"

#include <sys/resource.h>

#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <map>
#include <set>

#include "bench/http_target.h"

namespace nibble {

namespace {

using Clock = std::chrono::steady_clock;

double cpu_seconds() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// Bodies made ahead of their time, so that making one delays no event.
class Bodies {
 public:
  explicit Bodies(const Workload& workload) : workload_(workload) {}
  /// Makes those of the first `tasks` tasks, as many as a bound of memory allows.
  void prepare(int64_t tasks) {
    constexpr size_t kBytesMax = size_t{512} << 20;
    size_t bytes = 0;
    for (int64_t task = 0; task < tasks && bytes < kBytesMax; ++task) {
      bytes += made_.emplace(task, workload_.request(task, {})).first->second.body.size();
    }
  }
  PlannedRequest take(int64_t task, const std::vector<Exchange>& before) {
    const auto found = made_.find(task);
    if (!before.empty() || found == made_.end()) return workload_.request(task, before);
    PlannedRequest request = std::move(found->second);
    made_.erase(found);
    return request;
  }

 private:
  const Workload& workload_;
  std::map<int64_t, PlannedRequest> made_;
};

class LoadLoop {
 public:
  LoadLoop(const LoadTarget& target, const Workload& workload, LoadRun run, asio::io_context& io,
           Connections::Endpoints endpoints)
      : target_(target),
        workload_(workload),
        run_(std::move(run)),
        io_(io),
        connections_(io, std::move(endpoints)),
        pacer_(run_.pace),
        bodies_(workload),
        watch_(io) {}

  RunRecord run() {
    record_.clients = run_.pace.clients;
    if (run_.pace.clients > 0 && run_.pace.seconds == 0.0)
      record_.requests_per_client =
          static_cast<int32_t>((run_.pace.tasks + run_.pace.clients - 1) / run_.pace.clients);
    const auto open = static_cast<int64_t>(run_.pace.arrivals.size());
    bodies_.prepare(run_.pace.clients > 0 ? run_.pace.tasks : open);
    const double cpu_before = cpu_seconds();
    begin_ = Clock::now();
    if (!run_.outliers.input_tokens.empty()) begin_outliers();
    for (const Turn& turn : pacer_.begin()) schedule(turn);
    watch();
    io_.run();
    record_.cpu_seconds = cpu_seconds() - cpu_before;
    for (const RequestRecord& each : record_.requests)
      record_.seconds = std::max(record_.seconds, each.ended);
    return std::move(record_);
  }

 private:
  /// A request in flight.
  struct Flight {
    RequestRecord record;
    AnswerReader reader;
    Turn turn;
    std::string question;
    std::string refusal;  // the body of another status than 200
    std::shared_ptr<HttpStream> stream;
    std::string trouble;  // why the answer is none
  };

  double now() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

  /// Calls `then` at `due_seconds`, on this thread.
  template <typename Then>
  void at(double due_seconds, Then then) {
    const auto timer = std::make_shared<asio::steady_timer>(io_);
    timers_.insert(timer);
    timer->expires_at(begin_ + std::chrono::duration_cast<Clock::duration>(
                                   std::chrono::duration<double>(due_seconds)));
    timer->async_wait([this, timer, then = std::move(then)](beast::error_code error) {
      timers_.erase(timer);
      if (!error && !stopping_) then();
    });
  }

  void schedule(const Turn& turn) {
    if (turn.due_seconds <= now()) return begin_turn(turn);
    at(turn.due_seconds, [this, turn] { begin_turn(turn); });
  }

  void begin_turn(const Turn& turn) {
    PlannedRequest planned = bodies_.take(turn.task, said_[turn.task]);
    RequestRecord record{.task = turn.task,
                         .turn = turn.turn,
                         .planned_output = planned.output_tokens,
                         .due = turn.due_seconds};
    send(std::move(planned), std::move(record), turn);
  }

  void send(PlannedRequest planned, RequestRecord record, const Turn& turn) {
    const bool chat = workload_.plan().api == LoadApi::chat;
    auto message =
        message_for(target_, http::verb::post, chat ? "/v1/chat/completions" : "/v1/completions");
    message.set(http::field::content_type, "application/json");
    message.body() = std::move(planned.body);
    message.prepare_payload();
    auto flight = std::make_shared<Flight>(Flight{.record = std::move(record),
                                                  .reader = AnswerReader(workload_.plan().api),
                                                  .turn = turn,
                                                  .question = std::move(planned.question)});
    flight->stream = std::make_shared<HttpStream>(
        connections_, std::move(message), std::chrono::duration<double>(target_.silence_seconds),
        StreamCalls{
            .status = [flight](int status) { flight->record.status = status; },
            .bytes = [this, flight](std::string_view bytes) { take(*flight, bytes); },
            .end = [this, flight](StreamEnd end,
                                  const std::string& reason) { ended(flight, end, reason); }});
    flights_.insert(flight);
    flight->record.sent = now();
    flight->stream->start();
  }

  void take(Flight& flight, std::string_view bytes) {
    constexpr int kOk = 200;
    constexpr size_t kRefusalBytesMax = 65536;
    if (flight.record.status != kOk) {
      if (flight.refusal.size() < kRefusalBytesMax) flight.refusal += bytes;
      return;
    }
    if (!flight.trouble.empty()) return;
    if (const auto fed = flight.reader.feed(bytes, now()); !fed.ok())
      flight.trouble = fed.error().message;
  }

  /// The outcome and the error of an answer that ended.
  static void judge(Flight& flight, StreamEnd end, const std::string& reason) {
    RequestRecord& record = flight.record;
    const auto say = [&](RequestOutcome outcome, std::string error) {
      record.outcome = outcome;
      record.error = std::move(error);
    };
    constexpr int kOk = 200;
    if (end == StreamEnd::timeout) return say(RequestOutcome::timeout, "no byte came in time");
    if (end == StreamEnd::failed) return say(RequestOutcome::failed, reason);
    if (record.status != kOk)
      return say(RequestOutcome::refused,
                 concat(record.status, " ", error_message(flight.refusal)));
    if (!flight.trouble.empty()) return say(RequestOutcome::failed, flight.trouble);
    if (!flight.reader.done())
      return say(RequestOutcome::cut, "the answer ended before data: [DONE]");
    if (!flight.reader.usage())
      return say(RequestOutcome::uncounted, "the answer has no usage, so its tokens are not known");
    if (flight.reader.token_times().empty() || flight.reader.usage()->completion_tokens == 0)
      return say(RequestOutcome::failed, "the answer has no tokens");
    record.usage = *flight.reader.usage();
  }

  void ended(const std::shared_ptr<Flight>& flight, StreamEnd end, const std::string& reason) {
    judge(*flight, end, reason);
    const bool answered = flight->record.outcome == RequestOutcome::complete;
    if (flight->record.kind == RequestKind::load && run_.pace.turns > 1) {
      if (answered && flight->turn.turn + 1 < run_.pace.turns)
        said_[flight->turn.task].push_back({flight->question, flight->reader.text()});
      else
        said_.erase(flight->turn.task);
    }
    keep(flight);
    if (stopping_) return;
    if (flight->record.kind == RequestKind::outlier) return next_outlier();
    for (const Turn& turn :
         pacer_.ended(flight->turn, answered ? TurnEnd::answered : TurnEnd::failed, now()))
      schedule(turn);
    if (pacer_.time_is_up(now())) stop();
    leave_if_done();
  }

  void keep(const std::shared_ptr<Flight>& flight) {
    RequestRecord& record = flight->record;
    if (record.outcome == RequestOutcome::stopped && flight->reader.usage())
      record.usage = *flight->reader.usage();
    record.ended = now();
    record.token_times = flight->reader.token_times();
    record.finish_reason = flight->reader.finish_reason();
    flights_.erase(flight);
    record_.requests.push_back(record);
    if (run_.progress) run_.progress(static_cast<int64_t>(record_.requests.size()));
    // The stream holds the calls, which hold the flight.
    asio::post(io_, [flight] { flight->stream.reset(); });
  }

  void begin_outliers() {
    pacer_.hold();
    outliers_open_ = true;
    at(run_.outliers.after_seconds, [this] { next_outlier(); });
  }

  void next_outlier() {
    const auto& lengths = run_.outliers.input_tokens;
    if (next_outlier_ == lengths.size()) {
      outliers_open_ = false;
      pacer_.release();
      if (pacer_.time_is_up(now())) stop();
      return leave_if_done();
    }
    const int64_t tokens = lengths[next_outlier_];
    RequestRecord record{.kind = RequestKind::outlier,
                         .task = static_cast<int64_t>(next_outlier_),
                         .planned_input = tokens,
                         .planned_output = run_.outliers.output_tokens,
                         .due = now()};
    send(workload_.outlier(static_cast<int64_t>(next_outlier_++), tokens,
                           run_.outliers.output_tokens),
         std::move(record), {});
  }

  void watch() {
    if (stopping_) return;
    watch_.expires_after(std::chrono::milliseconds(50));
    watch_.async_wait([this](beast::error_code error) {
      if (error || stopping_) return;
      if (run_.interrupted && run_.interrupted()) {
        record_.end = RunRecord::End::interrupted;
        return stop();
      }
      if (pacer_.time_is_up(now())) return stop();
      watch();
    });
  }

  void leave_if_done() {
    if (pacer_.done() && !outliers_open_) stop();
  }

  /// Ends everything; what is in flight becomes a record of its own kind.
  void stop() {
    if (std::exchange(stopping_, true)) return;
    watch_.cancel();
    for (const auto& timer : timers_) timer->cancel();
    const auto flights = flights_;
    for (const auto& flight : flights) {
      flight->stream->cancel();
      flight->record.outcome = RequestOutcome::stopped;
      keep(flight);
    }
  }

  const LoadTarget& target_;
  const Workload& workload_;
  LoadRun run_;
  asio::io_context& io_;
  Connections connections_;
  LoadPacer pacer_;
  Bodies bodies_;
  asio::steady_timer watch_;
  Clock::time_point begin_;
  std::set<std::shared_ptr<asio::steady_timer>> timers_;
  std::set<std::shared_ptr<Flight>> flights_;
  std::map<int64_t, std::vector<Exchange>> said_;  // of conversations in flight
  RunRecord record_;
  size_t next_outlier_ = 0;
  bool outliers_open_ = false;
  bool stopping_ = false;
};

}  // namespace

Result<RunRecord> run_load(const LoadTarget& target, const Workload& workload, LoadRun run) {
  asio::io_context io{1};
  auto endpoints = TRY(resolve(io, target.url));
  LoadLoop loop(target, workload, std::move(run), io, std::move(endpoints));
  return loop.run();
}

}  // namespace nibble
