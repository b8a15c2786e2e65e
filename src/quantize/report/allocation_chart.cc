// The picture of an allocation: predicted divergence over size. Plain SVG text, no scripts.
#include <algorithm>
#include <cmath>

#include "base/concat.h"
#include "quantize/report/allocation.h"
#include "quantize/report/text_of.h"

namespace nibble {
namespace {

constexpr double kLeft = 80, kTop = 40, kWidth = 640, kHeight = 320;
constexpr const char* kCurve = "#1b6ca8";
constexpr const char* kChosen = "#d1495b";

/// Bytes to the right; the logarithm of the divergence upwards, over four powers of ten at most.
struct Axes {
  double bytes_least = 0, bytes_most = 1;
  int power_least = -4, power_most = 0;
  double x(int64_t bytes) const {
    return kLeft + kWidth * (static_cast<double>(bytes) - bytes_least) / (bytes_most - bytes_least);
  }
  double y(double loss) const {
    const double power = loss > 0 ? std::log10(loss) : power_least;
    const double share = (power - power_least) / (power_most - power_least);
    return kTop + kHeight * (1 - std::clamp(share, 0.0, 1.0));
  }
};

Axes axes_of(const Allocation& allocation) {
  Axes axes;
  axes.bytes_least = static_cast<double>(allocation.curve.front().bytes);
  axes.bytes_most =
      std::max(axes.bytes_least + 1, static_cast<double>(allocation.curve.back().bytes));
  const double most = allocation.curve.front().loss;
  axes.power_most = most > 0 ? static_cast<int>(std::ceil(std::log10(most))) : 0;
  axes.power_least = axes.power_most - 4;
  return axes;
}

std::string frame(const Axes& axes) {
  std::string out =
      text_of("<rect x='%.0f' y='%.0f' width='%.0f' height='%.0f' fill='none' stroke='#999'/>\n",
              kLeft, kTop, kWidth, kHeight);
  for (int power = axes.power_least; power <= axes.power_most; ++power)
    out += text_of("<text x='%.0f' y='%.1f' text-anchor='end'>1e%d</text>\n", kLeft - 6,
                   axes.y(std::pow(10.0, power)) + 4, power);
  const bool gigabytes = axes.bytes_most >= 1e10;
  const double unit = gigabytes ? 1e9 : 1e6;
  for (int i = 0; i <= 4; ++i) {
    const double bytes = axes.bytes_least + (axes.bytes_most - axes.bytes_least) * i / 4;
    out += text_of("<text x='%.1f' y='%.0f' text-anchor='middle'>%.1f</text>\n",
                   kLeft + kWidth * i / 4, kTop + kHeight + 18, bytes / unit);
  }
  return out + text_of("<text x='%.0f' y='%.0f' text-anchor='middle'>%s of tensors</text>\n",
                       kLeft + kWidth / 2, kTop + kHeight + 36, gigabytes ? "GB" : "MB");
}

}  // namespace

std::string Allocation::chart() const {
  const Axes axes = axes_of(*this);
  std::string out = text_of(
      "<svg xmlns='http://www.w3.org/2000/svg' width='%.0f' height='%.0f' "
      "font-family='sans-serif' font-size='12'>\n<rect width='100%%' height='100%%' "
      "fill='white'/>\n<text x='%.0f' y='24' font-size='15'>Predicted KL divergence of a token "
      "(nats) by size</text>\n",
      kLeft + kWidth + 40, kTop + kHeight + 50, kLeft);
  out += frame(axes);
  std::string path;
  for (const AllocationPoint& point : curve) {
    const double x = axes.x(point.bytes), y = axes.y(point.loss);
    path += text_of("%.1f,%.1f ", x, y);
    out += text_of("<circle cx='%.1f' cy='%.1f' r='2' fill='%s'/>\n", x, y, kCurve);
  }
  out += concat("<polyline fill='none' stroke='", kCurve, "' points='", path, "'/>\n");
  const double x = axes.x(total.bytes), y = axes.y(total.loss);
  out += text_of("<circle cx='%.1f' cy='%.1f' r='5' fill='%s'/>\n", x, y, kChosen);
  out += text_of("<text x='%.1f' y='%.1f' fill='%s'>chosen: %.2f MB, %.2e</text>\n",
                 std::min(x + 10, kLeft + kWidth - 180), std::max(y - 8, kTop + 14), kChosen,
                 static_cast<double>(total.bytes) / 1e6, total.loss);
  return out + "</svg>\n";
}

}  // namespace nibble
