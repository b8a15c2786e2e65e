// The picture of a report: error over depth, a line per kind. Plain SVG text, no scripts.
#include <algorithm>
#include <cmath>
#include <map>

#include "quantize/report/quantize_report.h"
#include "quantize/report/text_of.h"

namespace nibble {
namespace {

constexpr double kLeft = 60, kTop = 40, kWidth = 640, kHeight = 320, kLegend = 260;
constexpr const char* kColors[] = {"#1b6ca8", "#d1495b", "#2e8b57", "#edae49", "#6a4c93",
                                   "#00798c", "#8d5524", "#e07a5f", "#457b9d", "#7f7f7f",
                                   "#bc5090", "#588157", "#ff7f0e", "#264653"};

double error_of(const LayerReport& layer) {
  const RoundStatistics& r = layer.rounding;
  return r.weight_squares > 0 ? std::sqrt(r.error_squares / r.weight_squares) : 0.0;
}

struct Axes {
  int layers = 1;
  double error_max = 0.1;
  double x(int layer) const {
    return layer < 0 ? kLeft + kWidth : kLeft + kWidth * (layer + 0.5) / (layers + 1);
  }
  double y(double error) const { return kTop + kHeight * (1 - error / error_max); }
};

std::string frame(const Axes& axes) {
  std::string out = text_of(
      "<rect x='%.0f' y='%.0f' width='%.0f' height='%.0f' fill='none' "
      "stroke='#999'/>\n",
      kLeft, kTop, kWidth, kHeight);
  for (int i = 0; i <= 4; ++i) {
    const double error = axes.error_max * i / 4;
    out += text_of("<text x='%.0f' y='%.1f' text-anchor='end'>%.1f %%</text>\n", kLeft - 6,
                   axes.y(error) + 4, 100 * error);
  }
  const int step = std::max(1, axes.layers / 8);
  for (int layer = 0; layer < axes.layers; layer += step)
    out += text_of("<text x='%.1f' y='%.0f' text-anchor='middle'>%d</text>\n", axes.x(layer),
                   kTop + kHeight + 18, layer);
  return out + text_of("<text x='%.0f' y='%.0f' text-anchor='middle'>layer</text>\n",
                       kLeft + kWidth / 2, kTop + kHeight + 36);
}

}  // namespace

std::string QuantizeReport::chart() const {
  Axes axes;
  std::map<std::string, std::vector<const LayerReport*>> by_kind;
  for (const LayerReport& layer : layers) {
    by_kind[layer.kind].push_back(&layer);
    axes.layers = std::max(axes.layers, layer.layer + 1);
    axes.error_max = std::max(axes.error_max, 1.1 * error_of(layer));
  }
  std::string out = text_of(
      "<svg xmlns='http://www.w3.org/2000/svg' width='%.0f' height='%.0f' "
      "font-family='sans-serif' font-size='12'>\n<rect width='100%%' height='100%%' "
      "fill='white'/>\n<text x='%.0f' y='24' font-size='15'>Relative error of the weights"
      "</text>\n",
      kLeft + kWidth + kLegend, kTop + kHeight + 50, kLeft);
  out += frame(axes);
  size_t line = 0;
  for (const auto& [kind, points] : by_kind) {
    const char* color = kColors[line % std::size(kColors)];
    std::string path;
    for (const LayerReport* point : points) {
      const double x = axes.x(point->layer), y = axes.y(error_of(*point));
      path += text_of("%.1f,%.1f ", x, y);
      out += text_of("<circle cx='%.1f' cy='%.1f' r='2.5' fill='%s'/>\n", x, y, color);
    }
    out += concat("<polyline fill='none' stroke='", color, "' points='", path, "'/>\n");
    out += text_of("<text x='%.0f' y='%.0f' fill='%s'>", kLeft + kWidth + 16,
                   kTop + 14 + 18 * static_cast<double>(line), color);
    out += kind + "</text>\n";
    ++line;
  }
  return out + "</svg>\n";
}

}  // namespace nibble
