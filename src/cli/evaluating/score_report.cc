// Log-probabilities, perplexity and, against a reference, divergence.
#include "cli/evaluating/score_report.h"

#include <algorithm>

#include "plan/text_table.h"

namespace nibble {
namespace {

std::string line(std::string_view name, std::string_view value) {
  std::string text(name);
  text.resize(std::max<size_t>(18, text.size() + 1), ' ');
  return concat(text, value, "\n");
}

std::string model_line(const ModelRequest& request, const Backend& backend) {
  return concat(request.folder.string(), " (", backend.description(), "; --activations ",
                activations_name(request.options.activations), ")");
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

}  // namespace

std::string score_text(const ScoreReport& report) {
  const TextScore& text = report.result.text;
  std::string out = line("model", model_line(report.request, *report.backend));
  out += line("sequences", concat(report.sequences));
  out += line("tokens", concat(text.predicted(), " predicted"));
  out += line("log-probability", fixed_text(text.sum(), 6));
  out += line("perplexity", fixed_text(text.perplexity(), 6));
  if (!report.result.divergence) return out;
  const DivergenceSummary& d = *report.result.divergence;
  const double expected = report.result.reference_text->perplexity();
  out += line("reference", report.reference_request
                               ? model_line(*report.reference_request, *report.reference)
                               : concat(report.stored_reference, " (stored logits)"));
  out += line("its perplexity", fixed_text(expected, 6));
  out += line("perplexity ratio", fixed_text(text.perplexity() / expected, 6));
  out += line("KL mean", scientific_text(d.kl_mean, 3));
  out += line("KL median", scientific_text(d.kl_median, 3));
  out += line("KL p95", scientific_text(d.kl_p95, 3));
  out += line("KL p99", scientific_text(d.kl_p99, 3));
  out += line("KL max", scientific_text(d.kl_max, 3));
  out += line("top-1 agreement",
              concat(fixed_text(100.0 * d.top1_agreement, 3), " % of ", d.positions, " positions"));
  return out;
}

Json score_json(const ScoreReport& report) {
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
  json.set("reference", report.reference_request
                            ? model_json(*report.reference_request, *report.reference, expected)
                            : json_object({{"stored_logits", report.stored_reference},
                                           {"tokens", Json(expected.predicted())},
                                           {"log_probability", Json(expected.sum())},
                                           {"perplexity", Json(expected.perplexity())}}));
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

}  // namespace nibble
