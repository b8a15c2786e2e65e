// The lines of a batch, as OpenAI's batch files have them:
//   in   {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {..}}
//   out  {"id": "batch_req_..", "custom_id": "a", "response": {"status_code", "request_id",
//   "body"},
//         "error": null}
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <variant>

#include "base/result.h"
#include "server/http/http.h"

namespace nibble {

struct BatchRequest {
  std::string custom_id;
  std::string url;
  std::string body;
};

/// The reason why a line is not run, which its answer states.
struct BatchRefusal {
  std::string custom_id;  // or empty
  std::string message;
};

/// `place` begins messages: "line 3". Bodies get the lowest priority there is.
std::variant<BatchRequest, BatchRefusal> parse_batch_line(std::string_view line,
                                                          std::string_view place);

/// Whole lines of output, with their line breaks.
std::string answered_line(std::string_view custom_id, const HttpResponse& response);
std::string refused_line(const BatchRefusal& refusal);

/// The answers of a batch: a file that later runs continue, or standard output.
class BatchOutput {
 public:
  /// Reads what an earlier run left; a line that it left unfinished goes. Errors: the file cannot
  /// be written, another run writes to it, or its lines are not answers.
  static Result<BatchOutput> open(const std::string& path);
  static BatchOutput standard();
  BatchOutput(BatchOutput&& other) noexcept;
  BatchOutput& operator=(BatchOutput&&) = delete;
  ~BatchOutput();

  /// True if an earlier run has answered this line.
  bool knows(const BatchRequest& request) const { return known_.contains("i" + request.custom_id); }
  bool knows(const BatchRefusal& refusal) const;
  int64_t earlier() const { return earlier_; }
  int64_t earlier_failures() const { return earlier_failures_; }

  Result<void> write(std::string_view line) const;

 private:
  BatchOutput(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  Result<void> read_earlier();
  Result<void> read_answer(std::string_view line, int64_t number);

  std::string path_;
  int descriptor_ = -1;
  std::unordered_set<std::string> known_;  // "i" + custom_id, or "m" + the message of a refusal
  int64_t earlier_ = 0;
  int64_t earlier_failures_ = 0;
};

}  // namespace nibble
