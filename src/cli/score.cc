// nibble score: log-probabilities and perplexity of given ids, raw logits, divergence from a
// second checkpoint.
#include "eval/score.h"

#include <cstdio>

#include "base/file.h"
#include "cli/serving/model_loader.h"
#include "cli/verb.h"

namespace nibble {
namespace {

constexpr uint64_t kIdsBytesMax = uint64_t{1} << 30;

constexpr auto kOwnOptions = std::to_array<Option>({
    {"ids", "FILE", "", "JSON {\"ids\": [..]}: one sequence, or a list of them"},
    {"logits", "OUT", "", "write all logits to this safetensors file, [T, V] F32"},
    {"reference", "DIR2", "", "compare distributions with this checkpoint's"},
    {"reference-activations", "MODE", "",
     "activations of the reference; default: as --activations"},
    {"reference-state-dtype", "TYPE", "", "state of the reference; default: as --state-dtype"},
    {"arithmetic", "NAME", "prompt", "prompt, or generation: each id as if it had been sampled"},
    {"json", "", "", "print one JSON object"},
});

constexpr auto kOptions = joined_options(kOwnOptions, kModelOptions);

std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string scientific(double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%.3e", value);
  return text;
}

struct ScoreReport {
  ModelRequest request;
  const Backend* backend = nullptr;
  std::optional<ModelRequest> reference_request;
  const Backend* reference = nullptr;
  size_t sequences = 0;
  ScoreResult result;
};

std::string line(std::string_view name, std::string_view value) {
  std::string text(name);
  text.resize(std::max<size_t>(18, text.size() + 1), ' ');
  return concat(text, value, "\n");
}

std::string model_line(const ModelRequest& request, const Backend& backend) {
  return concat(request.folder.string(), " (", backend.description(), "; --activations ",
                activations_name(request.options.activations), ")");
}

std::string readable(const ScoreReport& report) {
  const TextScore& text = report.result.text;
  std::string out = line("model", model_line(report.request, *report.backend));
  out += line("sequences", concat(report.sequences));
  out += line("tokens", concat(text.predicted(), " predicted"));
  out += line("log-probability", fixed(text.sum(), 6));
  out += line("perplexity", fixed(text.perplexity(), 6));
  if (!report.result.divergence) return out;
  const DivergenceSummary& d = *report.result.divergence;
  const double expected = report.result.reference_text->perplexity();
  out += line("reference", model_line(*report.reference_request, *report.reference));
  out += line("its perplexity", fixed(expected, 6));
  out += line("perplexity ratio", fixed(text.perplexity() / expected, 6));
  out += line("KL mean", scientific(d.kl_mean));
  out += line("KL median", scientific(d.kl_median));
  out += line("KL p95", scientific(d.kl_p95));
  out += line("KL p99", scientific(d.kl_p99));
  out += line("KL max", scientific(d.kl_max));
  out += line("top-1 agreement",
              concat(fixed(100.0 * d.top1_agreement, 3), " % of ", d.positions, " positions"));
  return out;
}

Json model_json(const ModelRequest& request, const Backend& backend, const TextScore& text) {
  Json json = Json::Object{};
  json.set("checkpoint", request.folder.string());
  json.set("backend", backend.name());
  json.set("description", backend.description());
  json.set("activations", activations_name(request.options.activations));
  json.set("tokens", text.predicted());
  json.set("log_probability", text.sum());
  json.set("perplexity", text.perplexity());
  return json;
}

Json json_of(const ScoreReport& report) {
  const TextScore& text = report.result.text;
  Json json = model_json(report.request, *report.backend, text);
  json.set("sequences", report.sequences);
  Json lists = Json::Array{};
  for (const auto& sequence : text.log_probabilities) {
    Json list = Json::Array{};
    for (const double value : sequence) list.push_back(value);
    lists.push_back(std::move(list));
  }
  json.set("log_probabilities", std::move(lists));
  if (!report.result.divergence) return json;
  const DivergenceSummary& d = *report.result.divergence;
  const TextScore& expected = *report.result.reference_text;
  json.set("reference", model_json(*report.reference_request, *report.reference, expected));
  Json kl = Json::Object{};
  kl.set("mean", d.kl_mean);
  kl.set("median", d.kl_median);
  kl.set("p95", d.kl_p95);
  kl.set("p99", d.kl_p99);
  kl.set("max", d.kl_max);
  json.set("kl", std::move(kl));
  json.set("top1_agreement", d.top1_agreement);
  json.set("perplexity_ratio", text.perplexity() / expected.perplexity());
  return json;
}

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
  report.reference = reference.backend.get();
  report.sequences = request.sequences.size();
  TRY(terminal.out(arguments.enabled("json") ? json_of(report).dump() + "\n" : readable(report)));
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
