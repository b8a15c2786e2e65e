// The report is read, changed and written again; the rest follows from it.
#include "quantize/convert/converted_papers.h"

#include <algorithm>
#include <array>

#include "base/file.h"
#include "quantize/report/allocation.h"
#include "quantize/report/model_card.h"

namespace nibble {
namespace {

constexpr uint64_t kPaperBytesMax = uint64_t{64} << 20;
constexpr std::string_view kCard = "README.md", kBaseCard = "README.base.md";
constexpr std::string_view kReport = "quantize_report.json", kPicture = "quantize_report.svg";
constexpr std::string_view kRecipe = "recipe.yaml";
constexpr std::array kPapers = {kCard, kBaseCard, kReport, kPicture, kRecipe, kHashesFile};

/// Empty if there is none.
Result<std::string> text_of(const Checkpoint& from, std::string_view name) {
  std::error_code failure;
  const auto path = from.folder() / name;
  if (!std::filesystem::exists(path, failure)) return std::string();
  return read_text_file(path, kPaperBytesMax);
}

/// The row of the head goes into the rest or out of it; sums are taken anew.
void replace_head(QuantizeReport& report, const KindReport& head) {
  constexpr std::string_view kThen = "; then lm_head ";
  report.about = concat(report.about.substr(0, report.about.find(kThen)), kThen,
                        head.weights > 0 ? head.scheme : "as it was");
  KindReport rest = std::move(report.kinds.back());
  report.kinds.pop_back();
  const auto is_head = [&](const auto& row) { return row.kind == head.kind; };
  rest.tensors += static_cast<int64_t>(std::erase_if(report.kinds, is_head));
  std::erase_if(report.layers, is_head);
  std::erase_if(report.fallbacks, [&](const auto& row) { return row.first == head.kind; });
  if (head.weights > 0) {
    --rest.tensors;
    report.kinds.push_back(head);
    report.layers.push_back({.kind = head.kind, .layer = -1, .rounding = head.rounding});
  }
  std::ranges::stable_sort(report.kinds, {}, &KindReport::kind);
  std::ranges::stable_sort(report.layers, {}, &LayerReport::kind);
  report.add_rest(std::move(rest));
}

QuantizeReport changed(QuantizeReport report, const Conversion& conversion) {
  report.dialect = conversion.dialect;
  report.bytes_out = conversion.tensor_bytes;
  report.hashes_file = conversion.hashes ? kHashesFile : std::string_view();
  report.commands.push_back(conversion.command);
  if (conversion.head) {
    replace_head(report, *conversion.head);
    report.allocation = {};  // its sizes and losses are those of another head
  }
  finish_report(report);
  return report;
}

Result<void> write_ours(const Checkpoint& from, const Conversion& conversion,
                        const QuantizeReport& report, CheckpointWriter& writer) {
  TRY(writer.add_file(kReport, report.json().dump_pretty()));
  TRY(writer.add_file(kPicture, report.chart()));
  const std::string rules = TRY(text_of(from, kRecipe));
  if (!rules.empty())
    TRY(writer.add_file(
        kRecipe, recipe_file(concat(rules, rules.ends_with('\n') ? "" : "\n", conversion.head_rule),
                             report)));
  const std::string base = TRY(text_of(from, kBaseCard));
  if (!base.empty()) TRY(writer.add_file(kBaseCard, base));
  std::string measured;
  if (conversion.weights == Conversion::Weights::same)
    measured = card_measurements(TRY(text_of(from, kCard)));
  return writer.add_file(kCard, model_card({.base_card = base,
                                            .licence = licence_files(from.folder()),
                                            .report = report,
                                            .config = from.config(),
                                            .measured = std::move(measured)}));
}

Result<void> write_foreign(const Checkpoint& from, const Conversion& conversion,
                           CheckpointWriter& writer) {
  const std::string card = TRY(text_of(from, kCard));
  if (!card.empty()) TRY(writer.add_file(kBaseCard, card));
  return writer.add_file(kCard, foreign_card({.base_card = card,
                                              .licence = licence_files(from.folder()),
                                              .base_name = hub_name(from.folder(), card),
                                              .declaration = conversion.declaration,
                                              .dialect = conversion.dialect,
                                              .command = conversion.command,
                                              .config = from.config()}));
}

Result<void> write_papers(const Checkpoint& from, const Conversion& conversion,
                          CheckpointWriter& writer) {
  std::vector<std::string_view> made_anew(kPapers.begin(), kPapers.end());
  if (conversion.head) made_anew.push_back(kAllocationPicture);  // it is of another head
  TRY(writer.copy_other_files(from.folder(), made_anew));
  const auto json = parse_json(TRY(text_of(from, kReport)), kReport);
  auto report = json.ok() ? parse_report(json.value()) : Result<QuantizeReport>(json.error());
  if (!report.ok()) return write_foreign(from, conversion, writer);
  return write_ours(from, conversion, changed(std::move(report).value(), conversion), writer);
}

}  // namespace

std::optional<Hashes> with_linked(const Checkpoint& from, std::span<const LinkedFile> linked,
                                  Hashes written) {
  const auto known = read_hashes(from.folder());
  if (!known.ok() || !known.value()) return std::nullopt;
  const Hashes& before = known.value()->tensors;
  for (const LinkedFile& file : linked)
    for (const std::string& tensor : file.tensors) {
      const auto hash = before.find(tensor);
      if (hash == before.end()) return std::nullopt;
      written.insert_or_assign(tensor, hash->second);
    }
  return written;
}

Result<void> finish_converted(const Checkpoint& from, const Conversion& conversion,
                              CheckpointWriter& writer) {
  TRY(write_papers(from, conversion, writer));
  if (conversion.dialect == Dialect::modelopt)
    TRY(writer.add_file("hf_quant_config.json",
                        modelopt_file(conversion.declaration).dump_pretty()));
  Json config = from.config();
  config.set("quantization_config",
             quantization_config(conversion.declaration, conversion.dialect));
  if (conversion.hashes) TRY(add_hashes(writer, *conversion.hashes, config));
  return writer.finish(config);
}

}  // namespace nibble
