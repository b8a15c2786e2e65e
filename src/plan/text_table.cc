// Two walks: widths, then lines.
#include "plan/text_table.h"

#include <algorithm>
#include <cstdio>

namespace nibble {

std::string text_table(const std::vector<std::vector<std::string>>& rows,
                       const std::vector<ColumnSide>& sides, const std::string& indent) {
  std::vector<size_t> widths(sides.size(), 0);
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const auto& row : rows) {
    std::string line = indent;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - row[i].size(), ' ');
      line += i == 0 ? "" : "  ";
      line += sides[i] == ColumnSide::left ? row[i] + space : space + row[i];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string fixed_text(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string scientific_text(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*e", digits, value);
  return text;
}

}  // namespace nibble
