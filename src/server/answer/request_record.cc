// Lines about requests, and the exchange that takes notes.
#include "server/answer/request_record.h"

#include <algorithm>
#include <ctime>

#include "base/json.h"

namespace nibble {

namespace {

constexpr size_t kRequestIdBytesMax = 128;
constexpr size_t kNameBytesMax = 100;

/// Milliseconds with one decimal place; -1: it never happened.
double ms_between(RequestRecord::Time from, RequestRecord::Time to) {
  if (to == RequestRecord::Time{}) return -1.0;
  const auto tenths =
      std::chrono::duration_cast<std::chrono::microseconds>(to - from).count() / 100;
  return static_cast<double>(tenths) / 10.0;
}

/// "2026-11-21T08:00:00Z".
std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm fields = {};
  ::gmtime_r(&now, &fields);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &fields);
  return text;
}

/// A client's word in a line of text: no spaces, no control characters, not long.
std::string one_word(std::string_view text) {
  std::string word(text.substr(0, kNameBytesMax));
  std::ranges::replace_if(
      word, [](char c) { return c <= ' ' || c >= 127; }, '?');
  return word;
}

bool is_hex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string text_line(const RequestRecord& r) {
  std::string line = concat(r.id, " ", one_word(r.path));
  if (r.key) line += concat(" key ", r.key->name);
  if (!r.model.empty()) line += concat(" model ", one_word(r.model));
  if (!r.trace_id.empty()) line += concat(" trace ", r.trace_id);
  line += concat(": status ", r.status);
  if (r.generates) {
    line += concat(", ", r.counts.prompt, " prompt tokens (", r.counts.cached, " cached), ",
                   r.counts.completion, " generated, ", r.outcome);
    if (const double first = ms_between(r.begin, r.first_token); first >= 0.0)
      line += concat(", first token after ", first, " ms");
  }
  line += concat(", ", ms_between(r.begin, r.end), " ms in all");
  if (!r.body.empty()) line += concat(", ", Json(r.body).dump());
  return line;
}

std::string json_line(const RequestRecord& r) {
  const auto text = [](std::string_view value) { return value.empty() ? Json() : Json(value); };
  Json line = json_object({{"time", Json(utc_now())},
                           {"request_id", Json(r.id)},
                           {"trace_id", text(r.trace_id)},
                           {"key", r.key ? Json(r.key->name) : Json()},
                           {"path", Json(one_word(r.path))},
                           {"model", text(one_word(r.model))},
                           {"status", Json(r.status)}});
  if (r.generates) {
    line.set("finish_reason", Json(r.outcome));
    line.set("prompt_tokens", Json(r.counts.prompt));
    line.set("cached_tokens", Json(r.counts.cached));
    line.set("completion_tokens", Json(r.counts.completion));
    const double first = ms_between(r.begin, r.first_token);
    line.set("first_token_ms", first >= 0.0 ? Json(first) : Json());
  }
  line.set("total_ms", Json(ms_between(r.begin, r.end)));
  if (!r.body.empty()) line.set("request", Json(r.body));
  return line.dump();
}

}  // namespace

std::string RequestRecord::line(LogFormat format) const {
  return format == LogFormat::json ? json_line(*this) : text_line(*this);
}

std::string request_id_of(const HttpRequest& request) {
  const std::string_view given = request.header("x-request-id");
  const bool sane = !given.empty() && given.size() <= kRequestIdBytesMax &&
                    std::ranges::all_of(given, [](char c) { return c > ' ' && c < 127; });
  return sane ? std::string(given) : random_id("req_");
}

std::string trace_id_of(const HttpRequest& request) {
  const std::string_view text = request.header("traceparent");
  const bool formed = text.size() == 55 && text.starts_with("00-") && text[35] == '-' &&
                      text[52] == '-' && is_hex(text.substr(3, 32)) &&
                      is_hex(text.substr(36, 16)) && is_hex(text.substr(53));
  const std::string_view id = formed ? text.substr(3, 32) : std::string_view();
  return id.find_first_not_of('0') == std::string_view::npos ? std::string() : std::string(id);
}

RecordedExchange::RecordedExchange(std::shared_ptr<HttpExchange> exchange,
                                   std::shared_ptr<RequestRecord> record, Hooks hooks)
    : exchange_(std::move(exchange)), record_(std::move(record)), hooks_(std::move(hooks)) {}

void RecordedExchange::decorate(HttpResponse& response) {
  record_->status = response.status;
  for (HttpHeader& header : hooks_.headers(*record_)) {
    const auto same = [&](const HttpHeader& given) { return given.name == header.name; };
    if (std::ranges::none_of(response.headers, same)) response.headers.push_back(std::move(header));
  }
}

void RecordedExchange::end() {
  if (record_->end != RequestRecord::Time{}) return;
  record_->end = std::chrono::steady_clock::now();
  hooks_.ended(record_);
}

void RecordedExchange::respond(HttpResponse response) {
  decorate(response);
  exchange_->respond(std::move(response));
  end();
}

void RecordedExchange::start_stream(HttpResponse response) {
  decorate(response);
  exchange_->start_stream(std::move(response));
}

void RecordedExchange::finish_stream() {
  exchange_->finish_stream();
  end();
}

/// The connection keeps the callback, and the exchange keeps no connection alive: no circle.
void RecordedExchange::on_gone(std::function<void()> callback) {
  exchange_->on_gone([record = record_, ended = hooks_.ended, callback = std::move(callback)] {
    if (record->end == RequestRecord::Time{}) {
      record->end = std::chrono::steady_clock::now();
      ended(record);
    }
    callback();
  });
}

}  // namespace nibble
