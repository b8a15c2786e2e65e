// Checks and figures as members and lines. Numbers that are not finite, which JSON does not have,
// are null.
#include "cli/card/receipt.h"

#include <algorithm>
#include <cmath>

#include "plan/card_table.h"
#include "plan/speed/expected_speed.h"
#include "plan/text_table.h"

namespace nibble {
namespace {

constexpr int64_t kSchema = 1;

/// Dense rates of BF16 products of NVIDIA's data sheets, of cards that multiply no 4-bit codes.
struct Bf16Rate {
  std::string_view card;  // its name in the card table
  double flops;
};
constexpr Bf16Rate kBf16Rates[] = {{"h100", 989e12}, {"h200", 989e12}};

Json finite(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }
Json known(const std::optional<double>& value) {
  return value && *value > 0 ? Json(*value) : Json(nullptr);
}
Json known(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? std::nan("") : values[values.size() / 2];
}

/// The unit, and how many of it one byte or FLOP a second is.
struct Unit {
  std::string_view name;
  double scale;
};
Unit unit_of(SpeedLimit limit) {
  return limit == SpeedLimit::bandwidth ? Unit{"GB/s", 1e-9} : Unit{"TFLOP/s", 1e-12};
}

std::optional<double> limit_of(const Receipt& receipt, SpeedLimit limit) {
  switch (limit) {
    case SpeedLimit::bandwidth:
      return receipt.bandwidth_bytes;
    case SpeedLimit::bf16_products:
      return receipt.bf16_flops;
    case SpeedLimit::fp8_products:
      return receipt.fp8_flops;
    case SpeedLimit::fp4_products:
      return receipt.fp4_flops;
    default:
      return std::nullopt;
  }
}

/// A figure in its unit: the median, the least and the most of all measurements.
struct Speed {
  Unit unit;
  double median, least, most;
  std::optional<double> data_sheet;  // in the same unit
};
Speed speed_of(const Receipt& receipt, const CardFigure& figure) {
  Speed speed{.unit = unit_of(figure.limit)};
  const double work = figure.work * speed.unit.scale;
  const auto [shortest, longest] = std::ranges::minmax_element(figure.seconds);
  speed.median = work / median(figure.seconds);
  speed.least = figure.seconds.empty() ? std::nan("") : work / *longest;
  speed.most = figure.seconds.empty() ? std::nan("") : work / *shortest;
  if (const auto limit = limit_of(receipt, figure.limit); limit && *limit > 0)
    speed.data_sheet = *limit * speed.unit.scale;
  return speed;
}

std::string_view way_of(const Receipt& receipt) {
  return receipt.card.has_fp4_instruction ? "instruction" : "emulated";
}

Json program_json(const Receipt& receipt) {
  return json_object({{"version", receipt.version},
                      {"commit", known(receipt.commit)},
                      {"program", known(receipt.program)},
                      {"built_for", receipt.built_for}});
}

Json card_json(const Receipt& receipt) {
  const CardIdentity& card = receipt.card;
  return json_object({{"name", card.name},
                      {"compute_capability", capability_text(card.capability)},
                      {"multiprocessors", card.multiprocessors},
                      {"memory_bytes", card.memory_bytes},
                      {"driver", known(receipt.driver)},
                      {"driver_cuda", card.driver_cuda},
                      {"runtime_cuda", card.runtime_cuda},
                      {"code", card.code},
                      {"fp4_instruction", card.has_fp4_instruction}});
}

Json harness_json(const Receipt& receipt) {
  const Fp4HarnessResult& harness = receipt.harness;
  return json_object({{"ran", way_of(receipt)},
                      {"fragments", harness.cases},
                      {"different", harness.different},
                      {"equal", harness.equal()},
                      {"milliseconds", finite(harness.milliseconds)}});
}

Json checks_json(const Receipt& receipt) {
  Json rows{Json::Array{}};
  for (const CheckedPart& part : receipt.checks) {
    Json failures{Json::Array{}};
    for (const std::string& name : part.failures) failures.push_back(name);
    rows.push_back(json_object({{"name", part.name},
                                {"ran", part.ran},
                                {"passed", part.passed},
                                {"failed", part.failed},
                                {"worst", finite(part.worst)},
                                {"seconds", finite(part.seconds)},
                                {"failures", std::move(failures)}}));
  }
  return rows;
}

Json figures_json(const Receipt& receipt) {
  Json rows{Json::Array{}};
  for (const CardFigure& figure : receipt.figures) {
    const Speed speed = speed_of(receipt, figure);
    rows.push_back(json_object(
        {{"name", figure.name},
         {"ran", figure.ran},
         {"unit", speed.unit.name},
         {"median", finite(speed.median)},
         {"least", finite(speed.least)},
         {"most", finite(speed.most)},
         {"measurements", figure.seconds.size()},
         {"data_sheet", known(speed.data_sheet)},
         {"share", speed.data_sheet ? finite(speed.median / *speed.data_sheet) : Json(nullptr)}}));
  }
  return rows;
}

int64_t failed_checks(const Receipt& receipt) {
  int64_t failed = 0;
  for (const CheckedPart& part : receipt.checks) failed += part.failed;
  return failed;
}

}  // namespace

void add_data_sheet(Receipt& receipt) {
  const PlannedCard card = card_of_device({.name = receipt.card.name,
                                           .capability = receipt.card.capability,
                                           .memory_bytes = receipt.card.memory_bytes});
  if (card.bandwidth_bytes > 0) receipt.bandwidth_bytes = card.bandwidth_bytes;
  if (const auto rates = rates_of(card)) {
    receipt.bf16_flops = rates->bf16;
    receipt.fp8_flops = rates->fp8;
    receipt.fp4_flops = rates->fp4;
  }
  for (const Bf16Rate& rate : kBf16Rates)
    if (card.name == rate.card) receipt.bf16_flops = rate.flops;
}

bool is_sound(const Receipt& receipt) {
  return receipt.harness.equal() && !receipt.checks.empty() &&
         std::ranges::all_of(receipt.checks, [](const CheckedPart& part) {
           return part.failed == 0 && part.passed > 0;
         });
}

std::string verdict_text(const Receipt& receipt) {
  const bool native = receipt.card.has_fp4_instruction;
  std::string text = is_sound(receipt) ? "sound: " : "not sound: ";
  const int64_t failed = failed_checks(receipt);
  if (failed > 0) text += concat(failed, failed == 1 ? " check" : " checks", " failed; ");
  if (native)
    text += receipt.harness.equal()
                ? "the card's instruction for 4-bit codes computes what this program does"
                : "the card's instruction for 4-bit codes does not compute what this program does, "
                  "which runs the weight-only kernels instead";
  else if (receipt.card.has_tensor_memory)
    text +=
        is_sound(receipt)
            ? "the card's products of 4-bit codes by tensor memory are those of this program"
            : "the card's products of 4-bit codes by tensor memory stay off, and the weight-only "
              "kernels run instead";
  else
    text += concat(
        "the card has no instruction for 4-bit codes; the kernels for it ran with "
        "software in its place",
        receipt.harness.equal() ? "" : ", which does not compute what it must");
  return text;
}

Json receipt_json(const Receipt& receipt) {
  return json_object(
      {{"schema", kSchema},
       {"program", program_json(receipt)},
       {"card", card_json(receipt)},
       {"harness", harness_json(receipt)},
       {"checks", checks_json(receipt)},
       {"data_sheet", json_object({{"bytes_per_second", known(receipt.bandwidth_bytes)},
                                   {"bf16_flops", known(receipt.bf16_flops)},
                                   {"fp8_flops", known(receipt.fp8_flops)},
                                   {"fp4_flops", known(receipt.fp4_flops)}})},
       {"figures", figures_json(receipt)},
       {"verdict", json_object({{"sound", is_sound(receipt)}, {"text", verdict_text(receipt)}})}});
}

std::string receipt_text(const Receipt& receipt) {
  std::string text =
      concat(receipt.card.name, ", compute capability ", capability_text(receipt.card.capability),
             ", driver ", receipt.driver.empty() ? "unknown" : receipt.driver, ", runs ",
             receipt.card.code, "\n");
  text += concat("4-bit codes (", way_of(receipt), "): ", receipt.harness.text(), ", ",
                 fixed_text(receipt.harness.milliseconds, 1), " ms\n");
  for (const CheckedPart& part : receipt.checks) {
    text += concat(part.failed == 0 ? "ok    " : "FAIL  ", part.name, " (", part.ran,
                   "): ", part.passed, " passed, ", part.failed, " failed, ",
                   fixed_text(part.seconds, 1), " s\n");
    for (const std::string& name : part.failures) text += concat("        ", name, "\n");
  }
  for (const CardFigure& figure : receipt.figures) {
    const Speed speed = speed_of(receipt, figure);
    text += concat(figure.name, " (", figure.ran, "): ", fixed_text(speed.median, 1), " ",
                   speed.unit.name);
    if (speed.data_sheet)
      text += concat(", ", fixed_text(100 * speed.median / *speed.data_sheet, 0), " % of ",
                     fixed_text(*speed.data_sheet, 0));
    text += "\n";
  }
  return concat(text, verdict_text(receipt), "\n");
}

}  // namespace nibble
