// Text from a report.
#include "quantize/model_card.h"

#include <algorithm>
#include <cstdio>

namespace nibble {
namespace {

std::string gigabytes(int64_t bytes) {
  char text[32];
  const bool small = bytes < 1'000'000'000;
  std::snprintf(text, sizeof text, "%.2f %s", static_cast<double>(bytes) / (small ? 1e6 : 1e9),
                small ? "MB" : "GB");
  return text;
}

std::string percent(double ratio) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f %%", 100 * ratio);
  return text;
}

bool has_four_bit_activations(const QuantPlan& plan) {
  return std::ranges::any_of(plan.declaration.quantized, [](const auto& module) {
    return module.scheme.activations == ActivationFormat::nvfp4;
  });
}

std::string matter(const ModelCard& card) {
  std::string out = "---\n";
  const auto line = [&](std::string_view key, const std::string& value) {
    if (!value.empty()) out += concat(key, ": ", value, "\n");
  };
  const std::string license = front_matter(card.base_card, "license");
  line("license", license.empty() ? "other" : license);
  line("license_name", front_matter(card.base_card, "license_name"));
  line("license_link", front_matter(card.base_card, "license_link"));
  line("base_model", card.base_name);
  line("base_model_relation", "quantized");
  const std::string task = front_matter(card.base_card, "pipeline_tag");
  const bool sees = card.config.find("vision_config") != nullptr;
  line("pipeline_tag", !task.empty() ? task : sees ? "image-text-to-text" : "text-generation");
  out += concat("tags:\n- nvfp4\n- ", dialect_name(card.report.dialect), "\n- nibble\n");
  return out + "---\n";
}

std::string size_table(const QuantizeReport& report) {
  std::string out =
      "| part | stored as | matrices | before | after | relative error |\n"
      "|---|---|---|---|---|---|\n";
  for (const KindReport& kind : report.kinds) {
    const bool rounded = kind.rounding.weight_squares > 0;
    out += concat("| ", kind.kind, " | ", kind.scheme, " | ", kind.tensors, " | ",
                  gigabytes(kind.bytes_in), " | ", gigabytes(kind.bytes_out), " | ",
                  rounded ? percent(kind.relative_error()) : std::string(), " |\n");
  }
  return out + concat("| all tensors | | | ", gigabytes(report.bytes_in), " | ",
                      gigabytes(report.bytes_out), " | |\n");
}

std::string_view status_text(RecipeStatus status) {
  if (status == RecipeStatus::production) return "production: fit for use";
  if (status == RecipeStatus::free_text)
    return "free text only: fit where no exact syntax (tool calls, JSON, code) is asked";
  return "lab: to experiment with";
}

std::string making(const ModelCard& card) {
  const QuantizeReport& report = card.report;
  std::string out =
      concat("## How it was made\n\n    nibble quantize ", card.base_name, " OUT --recipe ",
             report.recipe, " --format ", dialect_name(report.dialect), " --algorithm ",
             round_algorithm_name(report.algorithm), "\n\nRecipe `", report.recipe, "` (",
             card.recipe.about, "); status ", status_text(report.status),
             ". The rules are in `recipe.yaml`, all figures in "
             "`quantize_report.json`, the error by layer in "
             "`quantize_report.svg`.\n\n");
  out += report.data_hash.empty()
             ? std::string("No calibration data was used: weights are rounded without data")
             : concat("Calibration data: SHA-256 `", report.data_hash, "`");
  const bool constant = std::ranges::any_of(report.warnings, [](const std::string& warning) {
    return warning.starts_with("input scales are");
  });
  out += constant ? ", and the input scales are the recipe's constants.\n" : ".\n";
  return out;
}

std::string quality(const ModelCard& card) {
  std::string out = concat(
      "## Quality\n\nMeasure it against the base on your text (KL divergence, perplexity, top-1 "
      "agreement, error of every matrix):\n\n"
      "    nibble verify . --against BASE --text FILE --card\n");
  if (has_four_bit_activations(card.plan))
    out +=
        "\nThis file declares 4-bit activations. Hardware without FP4 multipliers runs it with "
        "higher ones; measure both: `--activations declared` and `--activations bf16`.\n";
  return out;
}

std::string running(const ModelCard& card) {
  return concat(
      "## Run it\n\n    nibble serve DIR\n    vllm serve DIR",
      card.report.dialect == Dialect::modelopt ? " --quantization modelopt" : "",
      "\n    python -m sglang.launch_server --model-path DIR",
      card.report.dialect == Dialect::modelopt ? " --quantization modelopt_fp4" : "",
      "\n\nNames, shapes and config follow what those loaders read; this file was not run "
      "in them when it was written.\n");
}

}  // namespace

std::string front_matter(std::string_view card, std::string_view key) {
  if (!card.starts_with("---\n")) return "";
  const size_t end = card.find("\n---", 3);
  if (end == std::string_view::npos) return "";
  const std::string_view head = card.substr(4, end - 3);
  for (size_t begin = 0; begin < head.size();) {
    const size_t stop = std::min(head.find('\n', begin), head.size());
    std::string_view line = head.substr(begin, stop - begin);
    begin = stop + 1;
    if (!line.starts_with(key) || line.substr(key.size()).substr(0, 1) != ":") continue;
    line.remove_prefix(key.size() + 1);
    constexpr std::string_view kAround = " \t\r\"'";
    const size_t first = line.find_first_not_of(kAround);
    if (first == std::string_view::npos) return "";
    return std::string(line.substr(first, line.find_last_not_of(kAround) - first + 1));
  }
  return "";
}

std::string card_with_measurement(std::string card, const CardMeasurement& measured) {
  constexpr std::string_view kSection = "## Quality\n\n";
  constexpr std::string_view kHeader =
      "| text | positions | activations | mean KL | median KL | p99 KL | same top-1 | perplexity | "
      "of "
      "the base |\n|---|---|---|---|---|---|---|---|---|\n";
  const size_t section = card.find(kSection);
  if (section == std::string::npos) return card;
  size_t at = section + kSection.size();
  if (card.compare(at, kHeader.size(), kHeader) != 0) card.insert(at, concat(kHeader, "\n"));
  at += kHeader.size();
  char figures[256];
  std::snprintf(figures, sizeof figures, "%.6f | %.6f | %.4f | %.2f %% | %.4f | %.4f |\n",
                measured.kl_mean, measured.kl_median, measured.kl_p99, 100 * measured.top1,
                measured.perplexity, measured.base_perplexity);
  const std::string text =
      concat("| ", measured.text, " (SHA-256 ", measured.text_sha256.substr(0, 12), ") | ");
  const std::string row =
      concat(text, measured.positions, " | ", measured.activations, " | ", figures);
  while (card.compare(at, 2, "| ") == 0) {  // the rows that are there
    const size_t next = card.find('\n', at) + 1;
    const std::string there = card.substr(at, next - at);
    const bool same = there.starts_with(text) &&
                      there.find(concat(" | ", measured.activations, " | ")) != std::string::npos;
    if (same) return card.replace(at, next - at, row);
    at = next;
  }
  return card.insert(at, row);
}

std::string hub_name(const std::filesystem::path& folder) {
  constexpr std::string_view kPrefix = "models--";
  std::error_code failure;
  const auto whole = std::filesystem::absolute(folder, failure).lexically_normal();
  for (const auto& part : whole) {
    std::string name = part.string();
    if (!name.starts_with(kPrefix)) continue;
    name = name.substr(kPrefix.size());
    const size_t slash = name.find("--");
    return slash == std::string::npos ? name
                                      : concat(name.substr(0, slash), "/", name.substr(slash + 2));
  }
  const auto last = whole.has_filename() ? whole : whole.parent_path();
  return last.filename().string();
}

std::string model_card(const ModelCard& card) {
  const std::string name = card.base_name.substr(card.base_name.rfind('/') + 1);
  return concat(
      matter(card), "\n# ", name, ", ", card.report.recipe, "\n\n[", card.base_name,
      "] quantized with nibble ", NIBBLE_VERSION, ": ", card.recipe.about, ".\n\n", making(card),
      "\n## What is in it\n\n", size_table(card.report),
      "\nVision tower and MTP head are the base's, byte for byte.\n\n", quality(card), "\n",
      running(card),
      "\n## Licence and limits\n\nThe licence is the base model's; its licence and notice files "
      "are "
      "beside this one. The quantized model inherits the base's limits and biases (its card: "
      "`README.base.md`, where it had one), and adds rounding errors of its own: check it on your "
      "task.\n");
}

}  // namespace nibble
