// The record that a load test keeps of each request, and of a run of them. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/answer_reader.h"

namespace nibble {

enum class RequestOutcome : uint8_t {
  complete,   // all of the answer came, with its usage
  refused,    // another status than 200
  cut,        // the answer ended before [DONE]
  failed,     // no connection, an error in the stream, or bytes that are no answer
  timeout,    // nothing came for so long
  uncounted,  // complete, but the server did not say how many tokens it had
  stopped,    // by the load test itself, at the end of its time or by Ctrl-C
};
std::string_view outcome_name(RequestOutcome outcome);

enum class RequestKind : uint8_t { load, outlier };

/// Times are seconds since the begin of the run.
struct RequestRecord {
  RequestKind kind = RequestKind::load;
  int64_t task = 0;
  int32_t turn = 0;
  int64_t planned_input = 0;  // of an outlier
  int64_t planned_output = 0;
  double due = 0.0;
  double sent = 0.0;                // before the connection is made, if it is a new one
  std::vector<double> token_times;  // of the events that carried tokens
  double ended = 0.0;               // the answer complete, or the error
  RequestOutcome outcome = RequestOutcome::complete;
  int status = 0;  // of HTTP; 0: none came
  std::string error;
  std::string finish_reason;
  AnswerUsage usage;  // of complete ones; of stopped ones as far as the server said

  bool counts() const { return kind == RequestKind::load && outcome == RequestOutcome::complete; }
  /// An error: anything but an answer, and not our own doing.
  bool is_error() const {
    return outcome != RequestOutcome::complete && outcome != RequestOutcome::stopped;
  }
  /// To the first event with tokens, which there is in a complete one.
  double ttft() const { return token_times.front() - sent; }
  /// To the last event with tokens, as vLLM counts latency.
  double e2el() const { return token_times.back() - sent; }
  /// Seconds for each token after the first; 0 with a single token.
  double tpot() const {
    return usage.completion_tokens > 1
               ? (e2el() - ttft()) / static_cast<double>(usage.completion_tokens - 1)
               : 0.0;
  }
};

struct RunRecord {
  std::vector<RequestRecord> requests;  // as they ended
  int32_t clients = 0;                  // of a closed loop; 0: open
  double seconds = 0.0;                 // from the begin to the last end
  double cpu_seconds = 0.0;             // of this process
  int32_t requests_per_client = 0;      // of a closed loop; 0: an end by time
  enum class End : uint8_t { complete, interrupted } end = End::complete;
};

}  // namespace nibble
