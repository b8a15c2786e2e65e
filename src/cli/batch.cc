// Lines go to the server's own handler and come back as whole answers; a few are on their way at
// any time. Answers are written in the order in which they are done.
#include "cli/batch.h"

#include <algorithm>
#include <chrono>
#include <fstream>

#include "cli/evaluating/in_process_server.h"
#include "cli/quantizing/quantize_first.h"
#include "cli/serving/batch_lines.h"
#include "cli/serving/client_setup.h"

namespace nibble {

namespace {

constexpr size_t kLineBytesMax = size_t{64} << 20;

/// The lines of the file, one at a time.
class BatchInput {
 public:
  static Result<BatchInput> open(const std::string& path);
  /// Those that are not blank.
  int64_t total() const { return total_; }
  /// The next one; nothing: there is none.
  std::optional<std::variant<BatchRequest, BatchRefusal>> next();

 private:
  explicit BatchInput(const std::string& path) : file_(path, std::ios::binary) {}
  std::ifstream file_;
  int64_t number_ = 0;
  int64_t total_ = 0;
  std::unordered_set<std::string> seen_;  // custom ids
};

Result<BatchInput> BatchInput::open(const std::string& path) {
  BatchInput input(path);
  std::error_code ignored;
  if (!input.file_ || std::filesystem::is_directory(path, ignored))
    return make_error(ErrorCode::invalid_argument,
                      {.what = "--batch", .expected = "a file that can be read", .found = path});
  std::string line;
  while (std::getline(input.file_, line))
    input.total_ += line.find_first_not_of(" \t\r") != std::string::npos ? 1 : 0;
  input.file_.clear();
  input.file_.seekg(0);
  if (!input.file_)
    return make_error(ErrorCode::invalid_argument,
                      {.what = "--batch", .expected = "a file, not a pipe", .found = path});
  return input;
}

std::optional<std::variant<BatchRequest, BatchRefusal>> BatchInput::next() {
  std::string line;
  while (std::getline(file_, line)) {
    ++number_;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string place = concat("line ", number_);
    if (line.size() > kLineBytesMax)
      return BatchRefusal{.custom_id = "",
                          .message = concat(place, ": expected at most ", kLineBytesMax,
                                            " bytes, found ", line.size())};
    auto parsed = parse_batch_line(line, place);
    const std::string id = std::visit([](const auto& each) { return each.custom_id; }, parsed);
    if (!id.empty() && !seen_.insert(id).second)
      return BatchRefusal{
          .custom_id = "",
          .message = concat(place, ": custom_id ", Json(id).dump(), " was on an earlier line")};
    return parsed;
  }
  return std::nullopt;
}

class BatchRun {
 public:
  BatchRun(InProcessServer& server, BatchInput input, const BatchOutput& output, Terminal& terminal)
      : server_(server),
        input_(std::move(input)),
        output_(output),
        terminal_(terminal),
        progress_(terminal, {.label = "batch", .unit = "lines"}) {}

  Result<int> run();

 private:
  using Clock = std::chrono::steady_clock;
  Result<void> begin_lines(int64_t room);
  Result<void> take(const InProcessServer::Answer& answer);
  void count(const HttpResponse& response);
  std::string summary(bool whole) const;

  InProcessServer& server_;
  BatchInput input_;
  const BatchOutput& output_;
  Terminal& terminal_;
  Progress progress_;
  Clock::time_point start_ = Clock::now();
  bool ended_ = false;  // the input
  int64_t on_the_way_ = 0;
  int64_t skipped_ = 0, answered_ = 0, failed_ = 0;
  int64_t prompt_tokens_ = 0, answer_tokens_ = 0;
};

Result<void> BatchRun::begin_lines(int64_t room) {
  while (on_the_way_ < room) {
    auto next = input_.next();
    ended_ = !next.has_value();
    if (ended_) return {};
    if (std::visit([&](const auto& each) { return output_.knows(each); }, *next)) {
      ++skipped_;
      continue;
    }
    if (const auto* refusal = std::get_if<BatchRefusal>(&*next)) {
      ++failed_;
      TRY(output_.write(refused_line(*refusal)));
      continue;
    }
    auto& request = std::get<BatchRequest>(*next);
    ++on_the_way_;
    server_.ask(std::move(request.custom_id), std::move(request.url), std::move(request.body));
  }
  return {};
}

/// A figure of `usage`, by its name in either family of APIs.
int64_t tokens_in(const Json& body, std::string_view one, std::string_view other) {
  const Json* usage = body.find("usage");
  if (usage == nullptr) return 0;
  for (const auto name : {one, other})
    if (const Json* value = usage->find(name); value != nullptr && value->is_int())
      return value->as_int();
  return 0;
}

void BatchRun::count(const HttpResponse& response) {
  constexpr int kOk = 200;
  response.status == kOk ? ++answered_ : ++failed_;
  const auto body = parse_json(response.body, "an answer");
  if (!body.ok()) return;
  prompt_tokens_ += tokens_in(body.value(), "prompt_tokens", "input_tokens");
  answer_tokens_ += tokens_in(body.value(), "completion_tokens", "output_tokens");
}

Result<void> BatchRun::take(const InProcessServer::Answer& answer) {
  --on_the_way_;
  count(answer.response);
  return output_.write(answered_line(answer.id, answer.response));
}

std::string BatchRun::summary(bool whole) const {
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  const auto rate = [&](int64_t count) {
    return static_cast<int64_t>(static_cast<double>(count) / std::max(seconds, 1e-3));
  };
  std::string text = concat(answered_, " answered, ", failed_, " failed");
  if (skipped_ > 0)
    text += concat(", ", skipped_, " answered before",
                   output_.earlier_failures() > 0
                       ? concat(" (", output_.earlier_failures(), " of them failed)")
                       : "");
  text += concat("; ", prompt_tokens_, " prompt tokens, ", answer_tokens_, " generated (",
                 rate(answer_tokens_), " tokens/s)\n");
  if (!whole)
    text += concat("interrupted after ", skipped_ + answered_ + failed_, " of ", input_.total(),
                   " lines; ", "the same command with --output goes on where it stopped\n");
  return text;
}

Result<int> BatchRun::run() {
  while (true) {
    if (!interrupted()) TRY(begin_lines(server_.requests_max()));
    if (on_the_way_ == 0 && (ended_ || interrupted())) break;
    const std::vector<InProcessServer::Answer> answers = server_.take();
    TRY(server_.failure());  // their lines are not answered: the same command continues with them
    for (const InProcessServer::Answer& answer : answers) TRY(take(answer));
    progress_.update(static_cast<uint64_t>(skipped_ + answered_ + failed_),
                     static_cast<uint64_t>(input_.total()));
  }
  progress_.finish();
  terminal_.err(summary(ended_));
  if (!ended_) return kExitInterrupted;
  return failed_ + output_.earlier_failures() > 0 ? kExitFailure : kExitOk;
}

Result<BatchOutput> open_output(const Arguments& arguments, const std::string& input) {
  const auto path = arguments.text("output");
  if (!path) return BatchOutput::standard();
  std::error_code ignored;
  if (std::filesystem::equivalent(*path, input, ignored))
    return make_error(
        ErrorCode::invalid_argument,
        {.what = "--output", .expected = "another file than --batch", .found = *path});
  return BatchOutput::open(*path);
}

}  // namespace

Result<int> run_batch(const Arguments& arguments, Terminal& terminal) {
  if (arguments.positional_count() > 1)
    return make_error(ErrorCode::invalid_argument,
                      {.what = "--batch and PROMPT", .expected = "one of them", .found = "both"});
  const std::string path = *arguments.text("batch");
  BatchInput input = TRY(BatchInput::open(path));
  const BatchOutput output = TRY(open_output(arguments, path));
  EngineNeeds needs{.use = EngineUse::serving, .terminal = &terminal};
  needs.sequences_max = TRY(read_sequences(arguments));
  ClientSetup clients = TRY(read_client_setup(arguments));
  needs.tower = tower_for(clients.images);
  const auto folder = TRY(folder_to_load(arguments, terminal));
  const auto server =
      TRY(InProcessServer::start(arguments, std::move(clients), folder, needs, terminal));
  BatchRun batch(*server, std::move(input), output, terminal);
  Result<int> code = batch.run();
  server->stop(code.ok() ? InProcessServer::End::drain : InProcessServer::End::now);
  return end_of_verb("run", server->failure(), std::move(code), terminal);
}

}  // namespace nibble
