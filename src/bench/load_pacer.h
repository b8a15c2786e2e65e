// LoadPacer: when each request of a load test is due. Pure logic on times that its caller gives, so
// that tests use a clock of their own; it sends nothing.
//
// A task is one conversation; its turns follow one another, each after the answer to the one
// before. A plain request is a task of one turn. With a closed loop, so many clients each begin a
// task as soon as their last one has ended. With an open loop, tasks begin at random times,
// whatever the server does.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace nibble {

/// Times of arrival of an open loop.
struct ArrivalPlan {
  int64_t tasks = 1;
  /// Tasks a second; infinity: all at once.
  double rate = std::numeric_limits<double>::infinity();
  /// The shape of the gamma distribution of intervals: 1 is a Poisson process, less comes in
  /// bursts, more is more even; infinity: equal intervals. As `vllm bench serve --burstiness`.
  double burstiness = 1.0;
  uint64_t seed = 0;
};

/// Seconds from the begin, ascending. As in vLLM they are scaled so that the last one is
/// tasks/rate.
std::vector<double> arrival_times(const ArrivalPlan& plan);

struct Turn {
  int64_t task = 0;
  int32_t turn = 0;
  double due_seconds = 0.0;  // since the begin of the run
};

struct PacePlan {
  int32_t clients = 0;               // of a closed loop; 0: `arrivals` say when tasks begin
  std::vector<double> arrivals;      // of an open loop
  int64_t tasks = 1;                 // that a closed loop begins at least
  double seconds = 0.0;              // that a closed loop goes on at least
  int32_t turns = 1;                 // of each task
  double pause_seconds = 0.0;        // between an answer and the next turn of its task
  double error_pause_seconds = 0.1;  // a server that refuses is not to be flooded
};

enum class TurnEnd : uint8_t { answered, failed };

class LoadPacer {
 public:
  explicit LoadPacer(PacePlan plan);
  /// The turns that are due by themselves: of an open loop all first ones, of a closed loop one for
  /// each client.
  std::vector<Turn> begin();
  /// The turns that this end makes due: none or one. A task whose turn failed ends.
  std::vector<Turn> ended(const Turn& turn, TurnEnd end, double now_seconds);
  /// With an end by time: true once it has come and the tasks are begun. What runs then is to be
  /// stopped.
  bool time_is_up(double now_seconds) const;
  /// Nothing is due or runs any more.
  bool done() const { return open_ == 0; }
  /// A closed loop goes on while this is held, whatever its numbers say.
  void hold() { held_ = true; }
  void release() { held_ = false; }
  int64_t tasks_completed() const { return completed_; }

 private:
  PacePlan plan_;
  int64_t next_task_ = 0;
  int64_t completed_ = 0;
  int64_t open_ = 0;  // turns given out and not ended
  bool held_ = false;
};

}  // namespace nibble
