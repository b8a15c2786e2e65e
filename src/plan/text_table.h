// Columns of text: each as wide as its widest cell, words to the left, numbers to the right.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace nibble {

enum class ColumnSide : uint8_t { left, right };

/// One line for each row, without blanks at its end. Rows may have fewer cells than `sides`.
std::string text_table(const std::vector<std::vector<std::string>>& rows,
                       const std::vector<ColumnSide>& sides, const std::string& indent = "  ");

/// "1234.5", with so many digits behind the point.
std::string fixed_text(double value, int digits);

/// "1.23e-04", with so many digits behind the point.
std::string scientific_text(double value, int digits);

}  // namespace nibble
