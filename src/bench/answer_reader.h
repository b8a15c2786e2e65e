// AnswerReader: what one streamed answer of an OpenAI-compatible server says, event by event: when
// tokens came, what the usage counts, how it ended. The caller says what time it is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "bench/event_stream.h"

namespace nibble {

enum class LoadApi : uint8_t { chat, completions };

/// The counts of the field `usage`.
struct AnswerUsage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompt; 0 where the server does not say
};

class AnswerReader {
 public:
  explicit AnswerReader(LoadApi api) : api_(api) {}

  /// Bytes that came at `now_seconds`. Errors: corrupt for what is no event of this API; io with
  /// the server's message where the stream carries an error.
  Result<void> feed(std::string_view bytes, double now_seconds);

  /// The times of the events that carried tokens, ascending.
  const std::vector<double>& token_times() const { return token_times_; }
  const std::optional<AnswerUsage>& usage() const { return usage_; }
  /// The stream came to its end, [DONE], and not merely to a closed connection.
  bool done() const { return done_; }
  const std::string& finish_reason() const { return finish_reason_; }
  /// The text of the answer, for the next turn of a conversation.
  const std::string& text() const { return text_; }

 private:
  Result<void> take(std::string_view data, double now_seconds);
  Result<void> take_choice(const Json& choice, double now_seconds);

  LoadApi api_;
  EventStream events_;
  std::vector<double> token_times_;
  std::optional<AnswerUsage> usage_;
  std::string finish_reason_;
  std::string text_;
  bool done_ = false;
};

/// The message of a body such as {"error": {"message": ..}}, cut to one line of at most 200 bytes.
std::string error_message(std::string_view body);

}  // namespace nibble
