// Reads quantize_report.json.
#include "cli/loading/recipe_notice.h"

#include "base/file.h"
#include "base/json.h"

namespace nibble {

std::string recipe_notice(const std::filesystem::path& folder) {
  constexpr uint64_t kReportBytesMax = uint64_t{64} << 20;
  const auto text = read_text_file(folder / "quantize_report.json", kReportBytesMax);
  if (!text.ok()) return "";
  const auto report = parse_json(text.value(), "quantize_report.json");
  if (!report.ok()) return "";
  const Json* recipe = report.value().find("recipe");
  const Json* status = report.value().find("recipe_status");
  if (recipe == nullptr || status == nullptr || !recipe->is_string() || !status->is_string())
    return "";
  const std::string name = recipe->as_string().substr(0, 60);
  if (*status == Json("free-text"))
    return concat(
        "recipe ", name,
        ": for free text only; where exact syntax counts (tool calls, JSON, code) prefer a "
        "production recipe\n");
  if (*status == Json("lab"))
    return concat("recipe ", name, ": from the lab, to experiment with\n");
  return "";
}

}  // namespace nibble
