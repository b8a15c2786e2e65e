// Fuzz entry: by the first byte the results that an earlier run left, or a line of a task file with
// a server's answer behind it. An item is judged; anything else is refused in one line.
#include "base/check.h"
#include "eval/canary.h"
#include "eval/task_results.h"
#include "testing/test_files.h"

namespace {

using namespace nibble;

void check_one_line(const Error& error) {
  CHECK(error.message.find('\n') == std::string::npos, error.message);
}

void check_results(std::string_view text) {
  static const TemporaryFolder folder;
  const auto path = folder / "results.jsonl";
  write_test_file(path, text);
  const auto read = TaskResults::read(path.string());
  if (!read.ok()) return check_one_line(read.error());
  CHECK(read.value().head().is_object(), "a head of results");
}

void check_item(std::string_view text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const auto item = parse_task_line(text.substr(0, end), "line 1");
  if (!item.ok()) return check_one_line(item.error());
  CHECK(!item.value().id.empty() && item.value().digest.size() == 16, item.value().digest);
  const TaskRequest request = task_request(item.value(), {.model = "m"});
  CHECK(parse_json(request.body.dump(), "the request", {.depth_max = 100}).ok(), request.path);
  const auto answer = parse_task_answer(item.value(), text.substr(std::min(end + 1, text.size())));
  if (!answer.ok()) return check_one_line(answer.error());
  const auto judgement = judge(item.value(), answer.value());
  if (!judgement.ok()) return check_one_line(judgement.error());
  CHECK(judgement.value().why.find('\n') == std::string::npos, judgement.value().why);
  const TaskResult result{.id = item.value().id,
                          .digest = item.value().digest,
                          .answer = answer.value(),
                          .judgement = judgement.value()};
  const std::string line = result_line(item.value(), result);
  CHECK(line.find('\n') == line.size() - 1 && parse_json(line, "the result").ok(), line);
  CHECK(!decision_of(item.value(), answer.value()).empty(), "a decision");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] == 'r')
    check_results(text);
  else
    check_item(text);
  return 0;
}
