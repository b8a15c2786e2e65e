// Fuzz entry: by the first byte a file of patterns, the verdict of a program or a service, or a
// service's URL. Patterns are compiled and asked, or refused in one line; a verdict is one of
// three.
#include <cstdint>
#include <future>

#include "base/check.h"
#include "server/filters/output_filter.h"
#include "server/http/http_client.h"
#include "testing/test_files.h"

namespace {

using namespace nibble;

template <typename T>
void check_error(const Result<T>& result) {
  CHECK(result.error().message.find('\n') == std::string::npos, result.error().message);
}

void check_patterns(std::string_view text) {
  static const TemporaryFolder folder;
  write_test_file(folder / "patterns", text);
  const auto filter = make_regex_filter((folder / "patterns").string());
  if (!filter.ok()) return check_error(filter);
  std::promise<FilterVerdict> verdict;
  const FilterQuestion question{.place = FilterPlace::content, .text = "some text, a secret\n\xC3"};
  filter.value()->ask(std::make_shared<const FilterQuestion>(question),
                      [&](FilterVerdict found) { verdict.set_value(found); });
  CHECK(verdict.get_future().get() != FilterVerdict::failed, "a sound set of patterns failed");
}

void check_verdict(std::string_view text) {
  uint64_t id = 0;
  const FilterVerdict plain = verdict_in(text);
  const FilterVerdict numbered = verdict_in(text, &id);
  CHECK(numbered == plain || numbered == FilterVerdict::failed, "two verdicts of one text");
  if (plain == FilterVerdict::failed) return;
  CHECK(text.find("verdict") != text.npos || text.find("\\u") != text.npos, text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] == 'v') {
    check_verdict(text);
  } else if (data[0] == 'u') {
    const auto url = parse_http_url(text);
    if (!url.ok()) check_error(url);
    CHECK(!url.ok() || (!url.value().host.empty() && url.value().path.starts_with('/')), text);
  } else {
    check_patterns(text);
  }
  return 0;
}
