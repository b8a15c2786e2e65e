// Scales, axes with round numbers, lines with bars, and a legend.
#include "bench/svg_chart.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/concat.h"
#include "plan/text_table.h"

namespace nibble {

namespace {

constexpr double kWidth = 720.0;
constexpr double kHeight = 320.0;
constexpr double kLeft = 70.0;
constexpr double kRight = 20.0;
constexpr double kTop = 34.0;
constexpr double kBottom = 70.0;
// Colours that people who see few colours tell apart (Okabe and Ito).
constexpr std::array<const char*, 6> kColours = {"#0072b2", "#d55e00", "#009e73",
                                                 "#cc79a7", "#e69f00", "#56b4e9"};

/// A step of an axis: 1, 2 or 5 times a power of ten, at most six of them up to `most`.
double axis_step(double most) {
  const double raw = most / 6.0;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= raw) return factor * power;
  return 10.0 * power;
}

std::string number_text(double value) {
  const double size = std::abs(value);
  return fixed_text(value, size >= 10.0 || value == 0.0 ? 0 : (size >= 1.0 ? 1 : 3));
}

struct Scale {
  double x_least = 0.0, x_most = 1.0, y_most = 1.0;
  double x(double value) const {
    return kLeft + (value - x_least) / (x_most - x_least) * (kWidth - kLeft - kRight);
  }
  double y(double value) const {
    return kHeight - kBottom - value / y_most * (kHeight - kTop - kBottom);
  }
};

Scale scale_of(const Chart& chart) {
  Scale scale;
  double least = INFINITY, most = -INFINITY, high = 0.0;
  for (const ChartLine& line : chart.lines)
    for (const ChartPoint& point : line.points) {
      least = std::min(least, point.x);
      most = std::max(most, point.x);
      high = std::max({high, point.y, point.most});
    }
  if (least <= most) {
    scale.x_least = least == most ? least - 1.0 : least;
    scale.x_most = least == most ? most + 1.0 : most;
  }
  if (high > 0.0) scale.y_most = std::ceil(high / axis_step(high)) * axis_step(high);
  return scale;
}

std::string text_at(double x, double y, const char* anchor, std::string_view text) {
  return concat("<text x=\"", fixed_text(x, 1), "\" y=\"", fixed_text(y, 1), "\" text-anchor=\"",
                anchor, "\">", html_text(text), "</text>\n");
}

std::string line_from(double x1, double y1, double x2, double y2, std::string_view colour) {
  return concat("<line x1=\"", fixed_text(x1, 1), "\" y1=\"", fixed_text(y1, 1), "\" x2=\"",
                fixed_text(x2, 1), "\" y2=\"", fixed_text(y2, 1), "\" stroke=\"", colour, "\"/>\n");
}

/// A number of an axis with as many digits as its steps have.
std::string axis_text(double value, double step) {
  return fixed_text(value, step >= 1.0 ? 0 : static_cast<int>(std::ceil(-std::log10(step))));
}

std::string axes(const Chart& chart, const Scale& scale) {
  std::string svg;
  const double bottom = kHeight - kBottom;
  const double step = axis_step(scale.y_most);
  constexpr double kHalf = 0.5;
  for (double value = 0.0; value <= scale.y_most + step * kHalf; value += step) {
    svg += line_from(kLeft, scale.y(value), kWidth - kRight, scale.y(value), "#ddd");
    svg += text_at(kLeft - 6, scale.y(value) + 4, "end", axis_text(value, step));
  }
  const double x_step = axis_step(scale.x_most - scale.x_least);
  for (double value = std::ceil(scale.x_least / x_step) * x_step; value <= scale.x_most;
       value += x_step) {
    svg += line_from(scale.x(value), bottom, scale.x(value), bottom + 4, "#555");
    svg += text_at(scale.x(value), bottom + 17, "middle", axis_text(value, x_step));
  }
  svg += line_from(kLeft, bottom, kWidth - kRight, bottom, "#555");
  svg += text_at((kLeft + kWidth - kRight) / 2, bottom + 34, "middle", chart.x_label);
  svg += text_at(6, kTop - 8, "start", chart.y_label);
  return svg;
}

std::string drawn_line(const ChartLine& line, const Scale& scale, std::string_view colour) {
  std::string svg =
      concat("<polyline fill=\"none\" stroke-width=\"2\" stroke=\"", colour, "\" points=\"");
  std::string marks;
  constexpr size_t kMarkedMost = 60;
  for (const ChartPoint& point : line.points) {
    svg += concat(fixed_text(scale.x(point.x), 1), ",", fixed_text(scale.y(point.y), 1), " ");
    if (point.least < point.most)
      marks += line_from(scale.x(point.x), scale.y(point.least), scale.x(point.x),
                         scale.y(point.most), colour);
    if (line.points.size() <= kMarkedMost)
      marks += concat("<circle r=\"3\" cx=\"", fixed_text(scale.x(point.x), 1), "\" cy=\"",
                      fixed_text(scale.y(point.y), 1), "\" fill=\"", colour, "\"><title>",
                      html_text(line.name), ": ", number_text(point.y), "</title></circle>\n");
  }
  return concat(svg, "\"/>\n", marks);
}

}  // namespace

std::string html_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else if (c == '\'')
      out += "&#39;";
    else
      out += c;
  }
  return out;
}

std::string svg_chart(const Chart& chart) {
  const Scale scale = scale_of(chart);
  std::string svg = concat("<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" viewBox=\"0 0 ",
                           fixed_text(kWidth, 0), " ", fixed_text(kHeight, 0),
                           "\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#333\">\n<title>",
                           html_text(chart.title), "</title>\n");
  svg += text_at(kWidth / 2, 16, "middle", chart.title);
  svg += axes(chart, scale);
  double at = kLeft;
  for (size_t i = 0; i < chart.lines.size(); ++i) {
    const char* colour = kColours[i % kColours.size()];
    svg += drawn_line(chart.lines[i], scale, colour);
    svg += concat("<rect width=\"12\" height=\"12\" x=\"", fixed_text(at, 1), "\" y=\"",
                  fixed_text(kHeight - 20, 1), "\" fill=\"", colour, "\"/>\n");
    svg += text_at(at + 16, kHeight - 10, "start", chart.lines[i].name);
    constexpr double kLetter = 7.0;
    at += 34 + kLetter * static_cast<double>(chart.lines[i].name.size());
  }
  return svg + "</svg>\n";
}

}  // namespace nibble
