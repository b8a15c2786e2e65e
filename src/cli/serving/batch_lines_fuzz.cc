// Fuzz entry: by the first byte one line of a batch, or the output that an earlier run left. A line
// is a request or has an answer of its own; an output is continued or refused in one line.
#include "base/check.h"
#include "base/json.h"
#include "cli/serving/batch_lines.h"
#include "testing/test_files.h"

namespace {

using namespace nibble;

void check_line(std::string_view line) {
  const auto parsed = parse_batch_line(line, "line 1");
  if (const auto* refusal = std::get_if<BatchRefusal>(&parsed)) {
    CHECK(refusal->message.find('\n') == std::string::npos, refusal->message);
    const std::string answer = refused_line(*refusal);
    CHECK(answer.ends_with('\n') && answer.find('\n') == answer.size() - 1, answer);
    CHECK(parse_json(answer, "the answer").ok(), answer);
    return;
  }
  const auto& request = std::get<BatchRequest>(parsed);
  CHECK(!request.custom_id.empty() && request.url.starts_with("/v1/"), request.url);
  const auto body = parse_json(request.body, "the body", {.depth_max = 100});
  CHECK(body.ok() && body.value().is_object(), request.body);
}

void check_output(std::string_view text) {
  static const TemporaryFolder folder;
  const auto path = folder / "answers.jsonl";
  write_test_file(path, text);
  const auto output = BatchOutput::open(path.string());
  if (!output.ok()) {
    CHECK(output.error().message.find('\n') == std::string::npos, output.error().message);
    return;
  }
  CHECK(output.value().earlier() >= output.value().earlier_failures(), output.value().earlier());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] == 'o')
    check_output(text);
  else
    check_line(text);
  return 0;
}
