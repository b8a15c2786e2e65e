// A line chart as SVG, by itself: no script, no style sheet, no font from elsewhere. It draws what
// it is given and computes nothing but scales.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nibble {

struct ChartPoint {
  double x = 0.0;
  double y = 0.0;
  double least = 0.0;  // the ends of the bar through the point; both y: none
  double most = 0.0;
};

struct ChartLine {
  std::string name;
  std::vector<ChartPoint> points;  // by ascending x
};

struct Chart {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<ChartLine> lines;
};

/// An <svg> element. The y axis begins at 0. Points must be finite.
std::string svg_chart(const Chart& chart);

/// `text` with <, >, & and quotes written as entities.
std::string html_text(std::string_view text);

}  // namespace nibble
