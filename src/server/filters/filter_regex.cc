// Patterns, one a line, looked for in linear time (RE2): no text of a model or client can make a
// search slow. On a thread of its own, since prompts are long.
#include <re2/set.h>

#include "base/file.h"
#include "server/filters/output_filter.h"
#include "server/task_thread.h"

namespace nibble {

namespace {

constexpr uint64_t kFileBytesMax = uint64_t{4} << 20;
constexpr int kPatternsMax = 10'000;
constexpr int64_t kMemoryMax = int64_t{256} << 20;  // memory of the compiled set, at most
constexpr size_t kWaitingMax = 4096;

class RegexFilter final : public OutputFilter {
 public:
  RegexFilter(std::string_view file, std::unique_ptr<RE2::Set> patterns)
      : name_(concat("regex:", file)), patterns_(std::move(patterns)), thread_(kWaitingMax) {}

  std::string_view name() const override { return name_; }

  void ask(Question question, Answer answer) override {
    const auto shared = std::make_shared<Answer>(std::move(answer));
    const bool queued = thread_.post([this, question = std::move(question), shared] {
      RE2::Set::ErrorInfo error = {};
      const bool hit = patterns_->Match(question->text, nullptr, &error);
      const bool sound = hit || error.kind == RE2::Set::kNoError;
      (*shared)(!sound ? FilterVerdict::failed : hit ? FilterVerdict::hit : FilterVerdict::pass);
    });
    if (!queued) (*shared)(FilterVerdict::failed);
  }

 private:
  std::string name_;
  std::unique_ptr<RE2::Set> patterns_;
  TaskThread thread_;  // last: its tasks use the others
};

}  // namespace

Result<std::unique_ptr<OutputFilter>> make_regex_filter(std::string_view file) {
  const std::string text = TRY(read_text_file(std::string(file), kFileBytesMax));
  RE2::Options options;
  options.set_log_errors(false);
  options.set_max_mem(kMemoryMax);
  auto patterns = std::make_unique<RE2::Set>(options, RE2::UNANCHORED);
  int line_number = 0;
  int count = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    ++line_number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with('#')) continue;
    std::string why;
    if (++count > kPatternsMax ||
        patterns->Add(re2::StringPiece(line.data(), line.size()), &why) < 0)
      return make_error(ErrorCode::invalid_argument,
                        {.what = concat(file, " line ", line_number),
                         .expected = concat("at most ", kPatternsMax, " patterns in RE2's syntax"),
                         .found = count > kPatternsMax ? "one more" : why});
  }
  if (count == 0 || !patterns->Compile())
    return make_error(
        ErrorCode::invalid_argument,
        {.what = file,
         .expected = concat("patterns that fit ", kMemoryMax >> 20, " MiB compiled, one a line"),
         .found = concat(count, " patterns")});
  return std::unique_ptr<OutputFilter>(std::make_unique<RegexFilter>(file, std::move(patterns)));
}

}  // namespace nibble
