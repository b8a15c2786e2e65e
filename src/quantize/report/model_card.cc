// Text from a report.
#include "quantize/report/model_card.h"

#include <algorithm>
#include <cstdio>
#include <set>

#include "quantize/recipe/scheme_words.h"

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

/// The facts of the front matter that are not the base card's own words.
struct Matter {
  std::string_view base_card;
  std::string base_model;
  Dialect dialect = Dialect::compressed_tensors;
  const Json& config;
};

std::string front(const Matter& matter) {
  std::string out = "---\n";
  const auto line = [&](std::string_view key, const std::string& value) {
    if (!value.empty()) out += concat(key, ": ", value, "\n");
  };
  const std::string license = front_matter(matter.base_card, "license");
  line("license", license.empty() ? "other" : license);
  line("license_name", front_matter(matter.base_card, "license_name"));
  line("license_link", front_matter(matter.base_card, "license_link"));
  line("base_model", matter.base_model);
  line("base_model_relation", "quantized");
  const std::string task = front_matter(matter.base_card, "pipeline_tag");
  const bool sees = matter.config.find("vision_config") != nullptr;
  line("pipeline_tag", !task.empty() ? task : sees ? "image-text-to-text" : "text-generation");
  out += concat("tags:\n- nvfp4\n- ", dialect_name(matter.dialect), "\n- nibble\n");
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

std::string making(const QuantizeReport& report) {
  std::string out = "## How it was made\n\n";
  for (const std::string& command : report.commands) out += concat("    ", command, "\n");
  out += concat("\nRecipe `", report.recipe, "` (", report.about, "); status ",
                status_text(report.status),
                ". The rules are in `recipe.yaml`, all figures in "
                "`quantize_report.json`, the error by layer in "
                "`quantize_report.svg`.");
  if (!report.hashes_file.empty())
    out += concat(" `", report.hashes_file,
                  "` has the SHA-256 of every tensor and file; `nibble verify` compares them.");
  out += "\n\n";
  out += report.data_hash.empty()
             ? std::string("No calibration data was used: weights are rounded without data")
             : concat("Calibration data: SHA-256 `", report.data_hash, "`");
  const bool constant = std::ranges::any_of(report.warnings, [](const std::string& warning) {
    return warning.starts_with("input scales are");
  });
  out += constant ? ", and the input scales are the recipe's constants.\n" : ".\n";
  return out;
}

constexpr std::string_view kQuality = "## Quality\n\n";
constexpr std::string_view kMeasuredHead =
    "| text | positions | activations | mean KL | median KL | p99 KL | same top-1 | perplexity | "
    "of the base |\n|---|---|---|---|---|---|---|---|---|\n";

enum class Declared : uint8_t { higher_activations, four_bit_activations };

std::string quality(Declared declared, std::string_view measured) {
  std::string out =
      concat(kQuality, measured, measured.empty() ? "" : "\n",
             "Measure it against the base on your text (KL divergence, perplexity, top-1 "
             "agreement, error of every matrix):\n\n"
             "    nibble verify . --against BASE --text FILE --card\n");
  if (declared == Declared::four_bit_activations)
    out +=
        "\nThis file declares 4-bit activations. Hardware without FP4 multipliers runs it with "
        "higher ones; both are measured, `declared` and `bf16`.\n";
  return out;
}

/// The tensor that has one FP8 scale per 128 x 128 weights where other loaders take none.
enum class Blocked : uint8_t { nothing, head, table };

constexpr QuantScheme kNvfp4 = {WeightFormat::nvfp4, ActivationFormat::high};
constexpr QuantScheme kW4a4 = {WeightFormat::nvfp4, ActivationFormat::nvfp4};
constexpr QuantScheme kFp8 = {WeightFormat::fp8_tensor, ActivationFormat::fp8_tensor};

/// The commands that run a file depend on this.
struct Contents {
  Dialect dialect = Dialect::compressed_tensors;
  std::set<std::string> schemes = {};  // as scheme_text() has them
  bool weight_only_experts = false;    // NVFP4, with inputs in 16 bits
  bool nvfp4_experts = false;
  Blocked blocked = Blocked::nothing;
};

/// SGLang (0.5.23) has a name for each kind of ModelOpt file. Of its kernels for NVFP4 experts
/// Marlin alone leaves inputs in 16 bits; the others round them with the scale 1 that it has where
/// a file brings none.
std::string sglang_flags(const Contents& contents) {
  if (contents.dialect != Dialect::modelopt) return "";
  const std::string_view kind = contents.schemes.size() > 1                    ? "mixed"
                                : contents.schemes.contains(scheme_text(kFp8)) ? "fp8"
                                                                               : "fp4";
  return concat(" --quantization modelopt_", kind,
                contents.weight_only_experts ? " --moe-runner-backend marlin" : "");
}

/// Says why not transformers, or nothing. 5.23 was run.
std::string_view not_transformers(const Contents& contents) {
  if (contents.dialect == Dialect::modelopt)
    return "Not transformers (5.23): it does not read ModelOpt files, and fails or takes codes for "
           "weights.\n";
  const bool nvfp4 = contents.schemes.contains(scheme_text(kNvfp4)) ||
                     contents.schemes.contains(scheme_text(kW4a4));
  if (nvfp4 && contents.schemes.size() > 1)
    return "Not transformers (5.23): it fails at NVFP4 beside other formats.\n";
  if (!contents.nvfp4_experts) return "";
  return "Not transformers (5.23): it drops the global scales of NVFP4 experts, without an "
         "error.\n";
}

std::string running(const Contents& contents) {
  if (contents.blocked == Blocked::head)
    return "## Run it\n\n    nibble serve DIR\n\nReleased versions of vLLM (0.26 to 0.33 were "
           "read) and SGLang (0.5.23) do not load a head in FP8 blocks. `nibble convert DIR OUT "
           "--head bf16 --source BASE` writes the same weights with the base's head, which they "
           "load.\n";
  if (contents.blocked == Blocked::table)
    return "## Run it\n\n    nibble serve DIR\n\nReleased versions of vLLM and SGLang do not read "
           "an "
           "FP8 embedding table (vLLM's pull request 41365 is open): they refuse this file, or "
           "run it with a wrong table.\n";
  const bool modelopt = contents.dialect == Dialect::modelopt;
  return concat(
      "## Run it\n\n    nibble serve DIR\n    vllm serve DIR",
      modelopt ? " --quantization modelopt" : "",
      "\n    python -m sglang.launch_server --model-path DIR", sglang_flags(contents),
      "\n\nNames, shapes and config follow what those loaders read; this file was not run "
      "in them when it was written.\n",
      modelopt && contents.weight_only_experts
          ? "Without `--moe-runner-backend marlin` SGLang (0.5.23) rounds the inputs of "
            "experts to 4 bits on Blackwell cards, which this file does not ask for.\n"
          : "",
      not_transformers(contents));
}

std::string limits(LicenceFiles licence, std::string_view base_card) {
  const bool beside = licence == LicenceFiles::beside;
  return concat("\n## Licence and limits\n\nThe licence is the base model's",
                beside ? "; its licence and notice files are beside this one." : ".",
                " The quantized model inherits the base's limits and biases",
                base_card.empty() ? "" : " (its card: `README.base.md`)",
                ", and adds rounding errors of its own: check it on your task.\n");
}

/// "Qwen/Qwen3.6-35B-A3B" of https://huggingface.co/Qwen/Qwen3.6-35B-A3B/blob/main/LICENSE.
std::string linked_repository(std::string_view link) {
  constexpr std::string_view kHub = "https://huggingface.co/";
  if (!link.starts_with(kHub)) return "";
  link.remove_prefix(kHub.size());
  const size_t owner = link.find('/');
  if (owner == std::string_view::npos) return "";
  return std::string(link.substr(0, link.find('/', owner + 1)));
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
  const size_t section = card.find(kQuality);
  if (section == std::string::npos) return card;
  size_t at = section + kQuality.size();
  if (card.compare(at, kMeasuredHead.size(), kMeasuredHead) != 0)
    card.insert(at, concat(kMeasuredHead, "\n"));
  at += kMeasuredHead.size();
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

LicenceFiles licence_files(const std::filesystem::path& folder) {
  std::error_code failure;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failure)) {
    const std::string name = entry.path().filename().string();
    for (const std::string_view kind : {"LICENSE", "LICENCE", "NOTICE", "COPYING"})
      if (name.starts_with(kind)) return LicenceFiles::beside;
  }
  return LicenceFiles::none;
}

std::string hub_name(const std::filesystem::path& folder, std::string_view card) {
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
  std::string name = last.filename().string();
  const std::string linked = linked_repository(front_matter(card, "license_link"));
  if (linked.ends_with("/" + name)) return linked;
  std::string given = folder.lexically_normal().string();
  if (given.ends_with('/')) given.pop_back();
  const bool owned = folder.is_relative() && given.find('/') == given.size() - name.size() - 1 &&
                     !given.starts_with('.') && given.ends_with("/" + name);
  return owned ? given : name;
}

std::string card_measurements(std::string_view card) {
  const size_t section = card.find(kQuality);
  if (section == std::string_view::npos) return "";
  card.remove_prefix(section + kQuality.size());
  if (!card.starts_with(kMeasuredHead)) return "";
  size_t end = kMeasuredHead.size();
  while (card.substr(end).starts_with("| "))
    end = std::min(card.find('\n', end), card.size() - 1) + 1;
  return std::string(card.substr(0, end));
}

std::string model_card(const ModelCard& card) {
  const QuantizeReport& report = card.report;
  const std::string name = report.base.substr(report.base.rfind('/') + 1);
  const auto stored_as = [&](std::string_view kind, std::string_view scheme) {
    return std::ranges::any_of(report.kinds, [&](const KindReport& row) {
      return row.kind.ends_with(kind) && row.scheme == scheme;
    });
  };
  const auto declared = stored_as("", scheme_text(kW4a4)) ? Declared::four_bit_activations
                                                          : Declared::higher_activations;
  Contents contents{.dialect = report.dialect,
                    .weight_only_experts = stored_as("experts.down_proj", scheme_text(kNvfp4))};
  contents.nvfp4_experts =
      contents.weight_only_experts || stored_as("experts.down_proj", scheme_text(kW4a4));
  for (const KindReport& row : report.kinds)
    if (row.weights > 0) contents.schemes.insert(row.scheme);
  const QuantScheme table = {WeightFormat::fp8_block, ActivationFormat::high};
  const QuantScheme head = {WeightFormat::fp8_block, ActivationFormat::fp8_group};
  if (stored_as("embed_tokens", scheme_text(table)))
    contents.blocked = Blocked::table;
  else if (stored_as("lm_head", scheme_text(head)))
    contents.blocked = Blocked::head;
  return concat(front({card.base_card, report.base, report.dialect, card.config}), "\n# ", name,
                ", ", report.recipe, "\n\n[", report.base, "] quantized with nibble ",
                NIBBLE_VERSION, ": ", report.about, ".\n\n", making(report),
                "\n## What is in it\n\n", size_table(report),
                "\nVision tower and MTP head are the base's, byte for byte.\n\n",
                quality(declared, card.measured), "\n", running(contents),
                limits(card.licence, card.base_card));
}

std::string foreign_card(const ForeignCard& card) {
  const std::string named = front_matter(card.base_card, "base_model");
  const std::string base = named.empty() ? card.base_name : named;
  std::string table = "| stored as | linears |\n|---|---|\n";
  auto declared = Declared::higher_activations;
  Contents contents{.dialect = card.dialect};
  for (const SchemeUse& use : scheme_uses(card.declaration)) {
    contents.schemes.insert(scheme_text(use.scheme));
    const bool experts = use.scheme.weights == WeightFormat::nvfp4 &&
                         std::ranges::any_of(use.modules, is_routed_expert);
    contents.nvfp4_experts |= experts;
    contents.weight_only_experts |= experts && use.scheme == kNvfp4;
    table += concat("| ", scheme_text(use.scheme), " | ", use.modules.size(), " |\n");
    if (use.scheme.activations == ActivationFormat::nvfp4)
      declared = Declared::four_bit_activations;
  }
  return concat(front({card.base_card, base, card.dialect, card.config}), "\n# ",
                base.substr(base.rfind('/') + 1),
                ", converted\n\nAnother tool's quantization, "
                "converted with nibble ",
                NIBBLE_VERSION, ":\n\n    ", card.command,
                "\n\nHow it was quantized is not known here; the card it came with, where it had "
                "one, is `README.base.md`, and speaks of the file before the conversion.\n\n"
                "## What is in it\n\n",
                table, "\n", quality(declared, ""), "\n", running(contents),
                limits(card.licence, card.base_card));
}

}  // namespace nibble
