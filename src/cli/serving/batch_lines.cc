// Strict about the few members a line has; the body is the server's to judge.
#include "cli/serving/batch_lines.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/json.h"
#include "server/answer/response_json.h"

namespace nibble {

namespace {

constexpr size_t kIdBytesMax = 512;
constexpr int kDepthMax = 80;  // a request's, and the line around it
constexpr int32_t kLowestPriority = 1000;
constexpr std::string_view kUrls[] = {"/v1/chat/completions", "/v1/completions", "/v1/responses",
                                      "/v1/messages"};

std::string text_member(const Json& json, std::string_view key) {
  const Json* value = json.find(key);
  return value != nullptr && value->is_string() ? value->as_string() : "";
}

/// Says what is wrong with a line of these members; empty if nothing is.
std::string fault_of(const Json& json) {
  const std::string id = text_member(json, "custom_id");
  if (id.empty() || id.size() > kIdBytesMax)
    return concat("custom_id: expected a string of 1 to ", kIdBytesMax, " bytes");
  const Json* method = json.find("method");
  if (method != nullptr && *method != Json("POST")) return "method: expected \"POST\"";
  if (std::ranges::find(kUrls, text_member(json, "url")) == std::end(kUrls)) {
    std::string all;
    for (const auto& url : kUrls) all += concat(all.empty() ? "" : ", ", url);
    return concat("url: expected one of ", all);
  }
  const Json* body = json.find("body");
  if (body == nullptr || !body->is_object()) return "body: expected an object";
  const Json* stream = body->find("stream");
  if (stream != nullptr && *stream == Json(true))
    return "body: answers of a batch do not stream; leave out \"stream\"";
  return "";
}

}  // namespace

std::variant<BatchRequest, BatchRefusal> parse_batch_line(std::string_view line,
                                                          std::string_view place) {
  const auto parsed =
      parse_json(line, place, {.bytes_max = line.size() + 1, .depth_max = kDepthMax});
  if (!parsed.ok()) return BatchRefusal{.custom_id = "", .message = parsed.error().message};
  const Json& json = parsed.value();
  if (!json.is_object())
    return BatchRefusal{
        .custom_id = "",
        .message = concat(place, ": expected a JSON object, found ", json.type_name())};
  const std::string id = text_member(json, "custom_id");
  if (const std::string fault = fault_of(json); !fault.empty())
    return BatchRefusal{.custom_id = id.size() <= kIdBytesMax ? id : "",
                        .message = concat(place, ": ", fault)};
  Json body = *json.find("body");
  body.set("priority", Json(kLowestPriority));
  return BatchRequest{.custom_id = id, .url = text_member(json, "url"), .body = body.dump()};
}

std::string answered_line(std::string_view custom_id, const HttpResponse& response) {
  std::string request_id;
  for (const HttpHeader& header : response.headers)
    if (header.name == "x-request-id") request_id = header.value;
  // The body is JSON of one line already.
  return concat("{\"id\":", Json(random_id("batch_req_")).dump(),
                ",\"custom_id\":", Json(custom_id).dump(),
                ",\"response\":{\"status_code\":", response.status,
                ",\"request_id\":", Json(request_id).dump(), ",\"body\":", response.body,
                "},\"error\":null}\n");
}

std::string refused_line(const BatchRefusal& refusal) {
  const Json id = refusal.custom_id.empty() ? Json() : Json(refusal.custom_id);
  return json_object({{"id", Json(random_id("batch_req_"))},
                      {"custom_id", id},
                      {"response", Json()},
                      {"error", json_object({{"code", Json("invalid_line")},
                                             {"message", Json(refusal.message)}})}})
             .dump() +
         "\n";
}

Result<BatchOutput> BatchOutput::open(const std::string& path) {
  constexpr int kMode = 0666;  // less the umask
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, kMode);
  if (descriptor < 0)
    return make_error(ErrorCode::io,
                      {.what = concat("cannot write ", path, ": ", std::strerror(errno))});
  BatchOutput output(path, descriptor);
  if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0)
    return make_error(ErrorCode::io, {.what = concat(path, ": another run writes to it"),
                                      .advice = "wait for it or choose another --output"});
  TRY(output.read_earlier());
  return output;
}

BatchOutput BatchOutput::standard() { return BatchOutput("standard output", STDOUT_FILENO); }

BatchOutput::BatchOutput(BatchOutput&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      known_(std::move(other.known_)),
      earlier_(other.earlier_),
      earlier_failures_(other.earlier_failures_) {}

BatchOutput::~BatchOutput() {
  if (descriptor_ > STDERR_FILENO) ::close(descriptor_);
}

Result<void> BatchOutput::read_earlier() {
  std::ifstream file(path_, std::ios::binary);
  std::string line;
  int64_t whole_bytes = 0;
  while (std::getline(file, line) && !file.eof()) {  // the last line break ends the last answer
    whole_bytes += static_cast<int64_t>(line.size()) + 1;
    if (!line.empty()) TRY(read_answer(line, ++earlier_));
  }
  if (::ftruncate(descriptor_, whole_bytes) != 0)
    return make_error(ErrorCode::io,
                      {.what = concat("cannot write ", path_, ": ", std::strerror(errno))});
  return {};
}

Result<void> BatchOutput::read_answer(std::string_view line, int64_t number) {
  const auto parsed =
      parse_json(line, path_, {.bytes_max = line.size() + 1, .depth_max = kDepthMax});
  const Json* id = parsed.ok() ? parsed.value().find("custom_id") : nullptr;
  const Json* response = parsed.ok() ? parsed.value().find("response") : nullptr;
  const Json* error = parsed.ok() ? parsed.value().find("error") : nullptr;
  if (id == nullptr || response == nullptr || error == nullptr)
    return make_error(ErrorCode::invalid_argument,
                      {.what = concat(path_, " line ", number),
                       .expected = "an answer of an earlier run of this batch",
                       .found = "something else",
                       .advice = "choose another --output"});
  const Json* status = response->find("status_code");
  if (status == nullptr || *status != Json(200)) ++earlier_failures_;
  known_.insert(id->is_string() ? concat("i", id->as_string())
                                : concat("m", text_member(*error, "message")));
  return {};
}

bool BatchOutput::knows(const BatchRefusal& refusal) const {
  return known_.contains(refusal.custom_id.empty() ? "m" + refusal.message
                                                   : "i" + refusal.custom_id);
}

Result<void> BatchOutput::write(std::string_view line) const {
  while (!line.empty()) {
    const ssize_t put = ::write(descriptor_, line.data(), line.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0)
      return make_error(errno == ENOSPC ? ErrorCode::no_space : ErrorCode::io,
                        {.what = concat("cannot write ", path_, ": ", std::strerror(errno)),
                         .advice = "the same command goes on where this one stopped"});
    line.remove_prefix(static_cast<size_t>(put));
  }
  return {};
}

}  // namespace nibble
