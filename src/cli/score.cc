// nibble score: log-probabilities and perplexity of given ids with images between, raw logits,
// divergence from a second checkpoint.
#include "eval/score.h"

#include "base/file.h"
#include "cli/chat/image_file.h"
#include "cli/evaluating/score_report.h"
#include "cli/evaluating/scored_images.h"
#include "cli/serving/model_loader.h"
#include "cli/verb.h"

namespace nibble {
namespace {

constexpr uint64_t kIdsBytesMax = uint64_t{1} << 30;

constexpr auto kOwnOptions = std::to_array<Option>({
    {"ids", "FILE", "", "JSON {\"ids\": [..]}: one sequence, or a list of them"},
    {"image", "FILE", "",
     "the image for the next place of one in the ids, one image token or one for each of its rows: "
     "PNG, JPEG, WebP, GIF; may stand often",
     "", OptionForm::repeated},
    {"logits", "OUT", "", "write all logits to this safetensors file, [T, V] F32"},
    {"reference", "DIR2", "", "compare distributions with this checkpoint's"},
    {"reference-activations", "MODE", "",
     "activations of the reference; default: as --activations"},
    {"reference-state-dtype", "TYPE", "", "state of the reference; default: as --state-dtype"},
    {"arithmetic", "NAME", "prompt", "prompt, or generation: each id as if it had been sampled"},
    {"json", "", "", "print one JSON object"},
});

constexpr auto kOptions = joined_options(kOwnOptions, kImageOptions, kModelOptions);

Result<std::optional<ModelRequest>> reference_request(const Arguments& arguments,
                                                      const ModelRequest& model,
                                                      Terminal& terminal) {
  if (!arguments.text("reference")) return std::optional<ModelRequest>();
  ModelRequest request = model;
  request.folder = TRY(checkpoint_folder(*arguments.text("reference"), terminal));
  if (arguments.text("reference-activations"))
    request.options.activations = TRY(parse_activations(arguments, "reference-activations"));
  if (arguments.text("reference-state-dtype"))
    request.options.state = TRY(parse_state(arguments, "reference-state-dtype"));
  return std::optional<ModelRequest>(std::move(request));
}

/// Before the models are loaded, so that a wrong file fails at once.
Result<Json> read_ids(const Arguments& arguments) {
  const auto path = arguments.text("ids");
  if (!path)
    return make_error(
        ErrorCode::invalid_argument,
        {.what = "--ids", .expected = "a JSON file of token ids", .found = "nothing"});
  const std::string text = TRY(read_text_file(*path, kIdsBytesMax));
  return parse_json(text, *path, {.bytes_max = kIdsBytesMax});
}

Result<std::optional<LogitsFile>> open_logits(const Arguments& arguments,
                                              const std::vector<std::vector<int32_t>>& sequences,
                                              const ModelConfig& config) {
  const auto path = arguments.text("logits");
  if (!path) return std::optional<LogitsFile>();
  std::vector<int64_t> rows;
  for (const auto& ids : sequences) rows.push_back(static_cast<int64_t>(ids.size()));
  LogitsFile file = TRY(LogitsFile::create(*path, rows, config.vocab_rows));
  return std::optional<LogitsFile>(std::move(file));
}

Result<int> run_score(const Arguments& arguments, Terminal& terminal) {
  ScoreReport report{.request = TRY(model_request(arguments, arguments.positional(0)))};
  report.request.use = ModelUse::judging;
  const ImageFlags flags = TRY(read_image_flags(arguments));
  const auto images = TRY(
      image_urls_of(arguments.text("image").value_or(""), flags.intake.limits.encoded_bytes_max));
  if (!images.empty()) report.request.tower = TowerUse::wanted;
  report.request.folder = TRY(first_folder(arguments, terminal));
  report.reference_request = TRY(reference_request(arguments, report.request, terminal));
  const std::string name = TRY(arguments.choice("arithmetic", {"prompt", "generation"}));
  const Arithmetic arithmetic = name == "prompt" ? Arithmetic::prompt : Arithmetic::generation;
  const Json ids = TRY(read_ids(arguments));
  const LoadedModel model = TRY(load_model(report.request));
  terminal.err(model.notice);
  LoadedModel reference;
  ScoreRequest request{.model = {.backend = model.backend.get(), .config = &model.config},
                       .arithmetic = arithmetic};
  if (report.reference_request) {
    reference = TRY(load_model(*report.reference_request));
    request.reference = {.backend = reference.backend.get(), .config = &reference.config};
  }
  request.sequences = TRY(parse_ids(ids, model.config.vocab_rows));
  if (!images.empty())
    request.images =
        TRY(images_of_ids(images, flags, model.config, report.request.folder, request.sequences));
  auto logits = TRY(open_logits(arguments, request.sequences, model.config));
  if (logits) request.logits = &*logits;
  Progress progress(terminal, {.label = "scoring", .unit = "tokens"});
  request.progress = [&](int64_t done, int64_t total) {
    progress.update(static_cast<uint64_t>(done), static_cast<uint64_t>(total));
    return interrupted() ? ScoreRequest::Next::stop : ScoreRequest::Next::go_on;
  };
  install_interrupt_flag();
  report.result = TRY(score(request));
  progress.finish();
  if (logits) TRY(logits->finish());
  report.backend = model.backend.get();
  if (reference.backend) report.reference = reference.backend.get();
  report.sequences = request.sequences.size();
  TRY(terminal.out(arguments.enabled("json") ? score_json(report).dump() + "\n"
                                             : score_text(report)));
  return kExitOk;
}

}  // namespace

const Verb kScoreVerb = {
    .name = "score",
    .positionals = "DIR",
    .summary = "Scores given token ids: log-probabilities, perplexity, divergence",
    .options = kOptions,
    .run = run_score};

}  // namespace nibble
