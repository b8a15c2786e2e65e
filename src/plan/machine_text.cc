// The lines of a report for people and for programs.
#include <algorithm>

#include "plan/machine_report.h"

namespace nibble {

std::string_view health_name(Health health) {
  switch (health) {
    case Health::fine:
      return "fine";
    case Health::note:
      return "note";
    case Health::not_fine:
      return "not fine";
  }
  return "";
}

bool all_fine(const std::vector<HealthLine>& lines) {
  return std::ranges::none_of(
      lines, [](const HealthLine& line) { return line.health == Health::not_fine; });
}

std::string machine_text(const std::vector<HealthLine>& lines) {
  std::string text;
  size_t width = 0;
  for (const HealthLine& line : lines) width = std::max(width, line.subject.size());
  for (const HealthLine& line : lines) {
    std::string head = std::string(health_name(line.health));
    head.resize(health_name(Health::not_fine).size() + 2, ' ');
    std::string subject = line.subject;
    subject.resize(width + 2, ' ');
    text += concat(head, subject, line.text, "\n");
    if (!line.advice.empty())
      text += concat(std::string(head.size(), ' '), "-> ", line.advice, "\n");
  }
  return text + (all_fine(lines) ? "nothing stands in the way\n"
                                 : "some things are not fine: see the lines that say so\n");
}

Json machine_json(const std::vector<HealthLine>& lines) {
  Json rows{Json::Array{}};
  for (const HealthLine& line : lines)
    rows.push_back(json_object({{"subject", line.subject},
                                {"health", health_name(line.health)},
                                {"text", line.text},
                                {"advice", line.advice}}));
  return json_object({{"fine", all_fine(lines)}, {"lines", std::move(rows)}});
}

}  // namespace nibble
