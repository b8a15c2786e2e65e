// The lines, and the file with its lock.
#include "eval/task_results.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/file.h"

namespace nibble {
namespace {

constexpr uint64_t kFileBytesMax = uint64_t{4} << 30;
constexpr size_t kLineBytesMax = size_t{64} << 20;
constexpr const char* kFormat = "nibble_eval";
constexpr int kVersion = 1;

Error not_a_result(std::string_view place) {
  return make_error(ErrorCode::invalid_argument, {.what = std::string(place),
                                                  .expected = "a result of `nibble eval`",
                                                  .found = "something else",
                                                  .advice = "choose another --output"});
}

std::string text_of(const Json& json, std::string_view key) {
  const Json* value = json.find(key);
  return value != nullptr && value->is_string() ? value->as_string() : std::string();
}

int64_t count_of(const Json& json, std::string_view key) {
  const Json* value = json.find(key);
  return value != nullptr && value->is_int() ? value->as_int() : 0;
}

std::optional<Verdict> verdict_of(const Json& json) {
  for (const Verdict each : {Verdict::wrong, Verdict::right, Verdict::unscored})
    if (text_of(json, "verdict") == verdict_name(each)) return each;
  return std::nullopt;
}

Json calls_json(const std::vector<AnsweredCall>& calls) {
  Json list = Json::Array{};
  for (const AnsweredCall& call : calls)
    list.push_back(json_object({{"name", call.name}, {"arguments", call.arguments}}));
  return list;
}

TaskAnswer answer_of(const Json& json) {
  TaskAnswer answer{.content = text_of(json, "content"),
                    .finish = text_of(json, "finish_reason"),
                    .prompt_tokens = count_of(json, "prompt_tokens"),
                    .answer_tokens = count_of(json, "answer_tokens")};
  if (const Json* calls = json.find("tool_calls"); calls != nullptr && calls->is_array())
    for (const Json& each : calls->as_array())
      answer.calls.push_back({text_of(each, "name"), text_of(each, "arguments")});
  if (const Json* scores = json.find("scores"); scores != nullptr && scores->is_array())
    for (const Json& each : scores->as_array())
      answer.scores.push_back(each.is_number() ? each.as_double() : 0.0);
  return answer;
}

}  // namespace

std::string result_line(const TaskItem& item, const TaskResult& result) {
  const TaskAnswer& answer = result.answer;
  Json json = json_object({{"id", result.id},
                           {"digest", result.digest},
                           {"task", item.task},
                           {"verdict", verdict_name(result.judgement.verdict)},
                           {"why", result.judgement.why},
                           {"finish_reason", answer.finish},
                           {"content", answer.content}});
  if (!answer.calls.empty()) json.set("tool_calls", calls_json(answer.calls));
  if (!answer.scores.empty()) {
    Json scores = Json::Array{};
    for (const double each : answer.scores) scores.push_back(each);
    json.set("scores", std::move(scores));
  }
  json.set("prompt_tokens", Json(answer.prompt_tokens));
  json.set("answer_tokens", Json(answer.answer_tokens));
  return json.dump() + "\n";
}

TaskResults::TaskResults(TaskResults&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      head_(std::move(other.head_)),
      results_(std::move(other.results_)) {}

TaskResults::~TaskResults() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<TaskResults> TaskResults::open(const std::string& path, const Json& head) {
  constexpr int kMode = 0666;  // less the umask
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, kMode);
  if (descriptor < 0) return system_error("cannot write", path);
  TaskResults results(path, descriptor);
  if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0)
    return make_error(ErrorCode::io, {.what = concat(path, ": another run writes to it"),
                                      .advice = "wait for it or choose another --output"});
  const std::string text = TRY(read_text_file(path, kFileBytesMax));
  const size_t whole = TRY(results.read_lines(text));
  if (::ftruncate(descriptor, static_cast<off_t>(whole)) != 0)
    return system_error("cannot write", path);
  TRY(results.begin(head));
  return results;
}

Result<TaskResults> TaskResults::read(const std::string& path) {
  TaskResults results(path, -1);
  const std::string text = TRY(read_text_file(path, kFileBytesMax));
  TRY(results.read_lines(text));
  if (results.head_.is_null()) return not_a_result(path);
  return results;
}

/// A file without a head gets one; another head is another run.
Result<void> TaskResults::begin(const Json& head) {
  Json wanted = json_object({{kFormat, Json(kVersion)}});
  for (const auto& [key, value] : head.as_object()) wanted.set(key, value);
  if (head_.is_null()) {
    head_ = std::move(wanted);
    return write(head_.dump() + "\n");
  }
  if (same_value(head_, wanted)) return {};
  std::string differs;
  for (const auto& [key, value] : wanted.as_object())
    if (const Json* before = head_.find(key);
        differs.empty() && (before == nullptr || !same_value(*before, value)))
      differs =
          concat(key, " ", before == nullptr ? "null" : before->dump(), ", now ", value.dump());
  return make_error(
      ErrorCode::invalid_argument,
      {.what = path_,
       .expected = "results of the same model and settings",
       .found = differs.empty() ? std::string("other settings") : differs.substr(0, 300),
       .advice = "choose another --output"});
}

Result<size_t> TaskResults::read_lines(std::string_view text) {
  size_t whole = 0;
  for (size_t number = 1;; ++number) {
    const size_t end = text.find('\n', whole);
    if (end == std::string_view::npos) return whole;  // torn by a kill, or the end
    TRY(read_line(text.substr(whole, end - whole), concat(path_, " line ", number)));
    whole = end + 1;
  }
}

Result<void> TaskResults::read_line(std::string_view line, std::string_view place) {
  const auto parsed = parse_json(line, place, {.bytes_max = kLineBytesMax});
  if (!parsed.ok() || !parsed.value().is_object()) return not_a_result(place);
  const Json& json = parsed.value();
  if (head_.is_null()) {
    const Json* version = json.find(kFormat);
    if (version == nullptr || *version != Json(kVersion)) return not_a_result(place);
    head_ = json;
    return {};
  }
  const auto verdict = verdict_of(json);
  const std::string id = text_of(json, "id");
  if (id.empty() || !verdict || text_of(json, "digest").empty()) return not_a_result(place);
  const TaskResult result{.id = id,
                          .digest = text_of(json, "digest"),
                          .answer = answer_of(json),
                          .judgement = {.verdict = *verdict, .why = text_of(json, "why")}};
  if (!results_.emplace(id, result).second) return not_a_result(concat(place, ": a second ", id));
  return {};
}

Result<const TaskResult*> TaskResults::find(const TaskItem& item) const {
  const auto found = results_.find(item.id);
  if (found == results_.end()) return static_cast<const TaskResult*>(nullptr);
  if (found->second.digest == item.digest) return &found->second;
  return make_error(ErrorCode::invalid_argument, {.what = concat(path_, ": item ", item.id),
                                                  .expected = "the same question as now",
                                                  .found = "another one of that id",
                                                  .advice = "choose another --output"});
}

Result<void> TaskResults::add(const TaskItem& item, TaskResult result) {
  TRY(write(result_line(item, result)));
  results_.emplace(item.id, std::move(result));
  return {};
}

Result<void> TaskResults::write(std::string_view line) const {
  while (descriptor_ >= 0 && !line.empty()) {
    const ssize_t put = ::write(descriptor_, line.data(), line.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return system_error("cannot write", path_);
    line.remove_prefix(static_cast<size_t>(put));
  }
  return {};
}

}  // namespace nibble
