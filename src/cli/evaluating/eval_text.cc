// Text to ids by the checkpoint's own tokenizer, then eval/score.h.
#include "cli/evaluating/eval_text.h"

#include <algorithm>

#include "base/file.h"
#include "cli/evaluating/score_report.h"
#include "cli/options/folders.h"
#include "cli/serving/model_loader.h"
#include "text/tokenizer/tokenizer.h"

namespace nibble {
namespace {

constexpr uint64_t kTextBytesMax = uint64_t{1} << 30;
using Sequences = std::vector<std::vector<int32_t>>;

/// The texts of a JSONL file; a file of another kind is one text.
Result<std::vector<std::string>> texts_of(const std::string& path) {
  std::string text = TRY(read_text_file(path, kTextBytesMax));
  if (!path.ends_with(".jsonl")) return std::vector{std::move(text)};
  std::vector<std::string> texts;
  std::string_view left = text;
  for (size_t number = 1; !left.empty(); ++number) {
    const std::string_view line = left.substr(0, left.find('\n'));
    left.remove_prefix(std::min(line.size() + 1, left.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string place = concat(path, " line ", number);
    const Json json = TRY(parse_json(line, place));
    const Json* found = json.find("text");
    if (found == nullptr || !found->is_string())
      return make_error(ErrorCode::invalid_argument, {.what = place,
                                                      .expected = "{\"text\": \"..\"}",
                                                      .found = std::string(line.substr(0, 80))});
    texts.push_back(found->as_string());
  }
  return texts;
}

std::vector<int64_t> rows_of(const Sequences& sequences) {
  std::vector<int64_t> rows;
  for (const auto& ids : sequences) rows.push_back(static_cast<int64_t>(ids.size()));
  return rows;
}

/// The reference, if there is one, and the files that hold logits.
struct Sources {
  LoadedModel reference;
  std::optional<StoredLogits> stored;
  std::optional<LogitsFile> logits;
};

Result<Sources> open_sources(const Arguments& arguments, const Sequences& sequences,
                             const ModelConfig& config, ScoreReport& report) {
  Sources sources;
  const auto rows = rows_of(sequences);
  if (const auto path = arguments.text("logits"))
    sources.logits.emplace(TRY(LogitsFile::create(*path, rows, config.vocab_rows)));
  if (report.reference_request)
    sources.reference = TRY(load_model(*report.reference_request));
  else if (!report.stored_reference.empty())
    sources.stored = TRY(StoredLogits::open(report.stored_reference, rows, config.vocab_rows));
  return sources;
}

Result<int> score_texts(const Arguments& arguments, ScoreReport report, Terminal& terminal) {
  report.request.folder = TRY(checkpoint_folder(arguments.positional(1), terminal));
  report.request.use = ModelUse::judging;
  ScoreRequest request{.sequences = TRY(text_sequences(arguments, report.request.folder, 2))};
  const LoadedModel model = TRY(load_model(report.request));
  terminal.err(model.notice);
  Sources sources = TRY(open_sources(arguments, request.sequences, model.config, report));
  request.model = {.backend = model.backend.get(), .config = &model.config};
  if (sources.reference.backend)
    request.reference = {.backend = sources.reference.backend.get(),
                         .config = &sources.reference.config};
  if (sources.stored) request.stored_reference = &*sources.stored;
  if (sources.logits) request.logits = &*sources.logits;
  Progress progress(terminal, {.label = "scoring", .unit = "tokens"});
  request.progress = [&](int64_t done, int64_t total) {
    progress.update(static_cast<uint64_t>(done), static_cast<uint64_t>(total));
    return interrupted() ? ScoreRequest::Next::stop : ScoreRequest::Next::go_on;
  };
  install_interrupt_flag();
  report.result = TRY(score(request));
  progress.finish();
  if (sources.logits) TRY(sources.logits->finish());
  report.backend = model.backend.get();
  report.reference = sources.reference.backend.get();
  report.sequences = request.sequences.size();
  TRY(terminal.out(arguments.enabled("json") ? score_json(report).dump() + "\n"
                                             : score_text(report)));
  return kExitOk;
}

Result<void> check_words(const Arguments& arguments, std::string_view usage) {
  if (arguments.positional_count() >= 3) return {};
  return make_error(ErrorCode::invalid_argument,
                    {.what = concat("`nibble eval ", arguments.positional(0), "`"),
                     .expected = std::string(usage),
                     .found = "too few words"});
}

}  // namespace

Result<std::vector<std::vector<int32_t>>> text_sequences(const Arguments& arguments,
                                                         const std::filesystem::path& folder,
                                                         int first) {
  const Tokenizer tokenizer = TRY(Tokenizer::load(folder));
  const auto longest = TRY(arguments.integer("sequence-tokens", 2, 1 << 20));
  int64_t room = int64_t{1} << 40;
  if (arguments.given("max-tokens")) room = TRY(arguments.integer("max-tokens", 2, room));
  Sequences sequences;
  for (int file = first; file < arguments.positional_count(); ++file) {
    const std::vector<std::string> texts = TRY(texts_of(arguments.positional(file)));
    for (const std::string& text : texts) {
      const auto ids = TRY(tokenizer.encode(text, SpecialTokens::plain_text));
      const auto end = std::min(room, static_cast<int64_t>(ids.size()));
      for (int64_t at = 0; at + 1 < end; at += longest)
        sequences.emplace_back(ids.begin() + at, ids.begin() + std::min(end, at + longest));
      room -= end;
    }
  }
  if (sequences.empty())
    return make_error(ErrorCode::invalid_argument,
                      {.what = "TEXT", .expected = "at least two tokens", .found = "fewer"});
  return sequences;
}

Result<int> eval_perplexity(const Arguments& arguments, Terminal& terminal) {
  TRY(check_words(arguments, "DIR TEXT..."));
  if (arguments.given("against"))
    return make_error(ErrorCode::invalid_argument,
                      {.what = "--against", .advice = "a reference is for `nibble eval kl`"});
  return score_texts(arguments, {.request = TRY(model_request(arguments, arguments.positional(1)))},
                     terminal);
}

Result<int> eval_kl(const Arguments& arguments, Terminal& terminal) {
  TRY(check_words(arguments, "DIR TEXT... --against DIR2|LOGITS"));
  const auto other = arguments.text("against");
  if (!other)
    return make_error(ErrorCode::invalid_argument,
                      {.what = "--against",
                       .expected = "a checkpoint, or logits in a .safetensors file",
                       .found = "nothing"});
  ScoreReport report{.request = TRY(model_request(arguments, arguments.positional(1)))};
  if (other->ends_with(".safetensors")) {
    report.stored_reference = *other;
  } else {
    report.reference_request = report.request;
    report.reference_request->use = ModelUse::judging;
    report.reference_request->folder = TRY(checkpoint_folder(*other, terminal));
  }
  return score_texts(arguments, std::move(report), terminal);
}

}  // namespace nibble
