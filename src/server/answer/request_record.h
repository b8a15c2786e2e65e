// RequestRecord: what is reported about one request when it is over, as a line of text or of JSON;
// and the exchange that fills it in while the answer goes out. Never the prompt, unless asked.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/answer/response_json.h"
#include "server/clients/keys.h"
#include "server/http/http.h"

namespace nibble {

enum class LogFormat : uint8_t { text, json };

struct RequestRecord {
  using Time = std::chrono::steady_clock::time_point;

  std::string id;        // the client's x-request-id if it is harmless, else a new one
  std::string trace_id;  // the id in traceparent, 32 hex digits, or empty
  std::string path;
  std::string origin;                   // origin of a browser's page that may read the answer
  std::string model;                    // as the client named it
  std::string body;                     // only if prompts are to be logged
  std::shared_ptr<const KeyRules> key;  // nothing: the server has none
  Time begin = {};
  Time first_token = {};  // zero: none came
  Time end = {};
  int status = 0;           // 0: the client left before an answer
  std::string outcome;      // finish reason of a generation
  TokenCounts counts;       // token counts of a generation
  bool generates = false;   // tokens are still to be counted after the answer's end
  bool posted = false;      // it asks for work, other than a read
  bool holds_seat = false;  // counts among its key's requests at once
  bool written = false;

  std::string line(LogFormat format) const;
};

/// The client's x-request-id if it is harmless, else a new one.
std::string request_id_of(const HttpRequest& request);
/// The trace id of a W3C traceparent header (version 00, https://www.w3.org/TR/trace-context), or
/// empty.
std::string trace_id_of(const HttpRequest& request);

/// Passes an answer on, with more headers, and notes status and end.
class RecordedExchange final : public HttpExchange {
 public:
  struct Hooks {
    /// Headers for the answer that is about to begin.
    std::function<std::vector<HttpHeader>(const RequestRecord&)> headers;
    /// Once, when the answer is complete, the client has gone, or nobody will answer any more.
    std::function<void(const std::shared_ptr<RequestRecord>&)> ended;
  };
  RecordedExchange(std::shared_ptr<HttpExchange> exchange, std::shared_ptr<RequestRecord> record,
                   Hooks hooks);
  ~RecordedExchange() override { end(); }

  void respond(HttpResponse response) override;
  void start_stream(HttpResponse response) override;
  void write(std::string piece) override { exchange_->write(std::move(piece)); }
  void finish_stream() override;
  void on_gone(std::function<void()> callback) override;

 private:
  void decorate(HttpResponse& response);
  void end();

  std::shared_ptr<HttpExchange> exchange_;
  std::shared_ptr<RequestRecord> record_;
  Hooks hooks_;
};

}  // namespace nibble
