// The allocation as JSON and as a table.
#include "quantize/report/allocation.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/concat.h"
#include "quantize/recipe/model_linears.h"
#include "quantize/report/text_of.h"

namespace nibble {
namespace {

constexpr std::array kFormats = {AllocatedFormat::nvfp4, AllocatedFormat::fp8,
                                 AllocatedFormat::unquantized};

Json point_json(const AllocationPoint& point) {
  Json out;
  out.set("bytes", point.bytes);
  out.set("predicted_kl", point.loss);
  return out;
}

Json group_json(const AllocationGroup& group) {
  Json out;
  out.set("group", group.name);
  out.set("format", allocated_format_name(group.choices[group.chosen].format));
  Json choices{Json::Array()};
  for (const AllocationChoice& choice : group.choices) {
    Json one;
    one.set("format", allocated_format_name(choice.format));
    one.set("bytes", choice.bytes);
    one.set("predicted_kl", choice.loss);
    choices.push_back(std::move(one));
  }
  out.set("choices", std::move(choices));
  return out;
}

/// The groups of one kind, over all layers.
struct KindLine {
  std::map<AllocatedFormat, int> counts;
  AllocationPoint sum;
};

}  // namespace

std::string_view allocated_format_name(AllocatedFormat format) {
  constexpr std::string_view kNames[] = {"NVFP4", "FP8", "as it was"};
  return kNames[static_cast<size_t>(format)];
}

Json Allocation::json() const {
  Json out;
  out.set("recipe", recipe);
  out.set("target", target);
  out.set("data_sha256", data_hash);
  out.set("tokens", tokens);
  out.set("total", point_json(total));
  Json rows{Json::Array()};
  for (const AllocationGroup& group : groups) rows.push_back(group_json(group));
  out.set("groups", std::move(rows));
  Json points{Json::Array()};
  for (const AllocationPoint& point : curve) points.push_back(point_json(point));
  out.set("curve", std::move(points));
  return out;
}

std::string Allocation::table() const {
  std::map<std::string, KindLine> kinds;
  size_t width = 7;
  for (const AllocationGroup& group : groups) {
    const std::string kind = linear_kind(group.name);
    width = std::max(width, kind.size());
    KindLine& line = kinds[kind];
    const AllocationChoice& choice = group.choices[group.chosen];
    ++line.counts[choice.format];
    line.sum.bytes += choice.bytes;
    line.sum.loss += choice.loss;
  }
  const int columns = static_cast<int>(width);
  std::string text = text_of("%-*s  %5s  %5s  %9s  %10s  %12s\n", columns, "linears", "NVFP4",
                             "FP8", "as it was", "MB", "predicted KL");
  for (auto& [kind, line] : kinds)
    text += text_of("%-*s  %5d  %5d  %9d  %10.2f  %12.3e\n", columns, kind.c_str(),
                    line.counts[kFormats[0]], line.counts[kFormats[1]], line.counts[kFormats[2]],
                    static_cast<double>(line.sum.bytes) / 1e6, line.sum.loss);
  const auto point = [](const AllocationPoint& at) {
    return text_of("%.2f MB, predicted KL %.3e", static_cast<double>(at.bytes) / 1e6, at.loss);
  };
  return concat(text, target, ": ", point(total), " (all in NVFP4: ", point(curve.front()),
                "; all as they were: ", point(curve.back()), ")\n");
}

}  // namespace nibble
