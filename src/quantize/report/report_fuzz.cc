// Fuzz entry: one quantize_report.json, as a conversion reads it. What is read can be summed up,
// drawn, told and written, and comes back as it was; else it is refused in one line.
#include "quantize/report/model_card.h"
#include "quantize/report/quantize_report.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto json = nibble::parse_json(text, "fuzz");
  if (!json.ok()) return 0;
  auto report = nibble::parse_report(json.value());
  if (!report.ok()) {
    CHECK(report.error().message.find('\n') == std::string::npos, report.error().message);
    return 0;
  }
  nibble::QuantizeReport& r = report.value();
  const nibble::Json written = r.json();
  const auto again = nibble::parse_report(written);
  CHECK(again.ok() && again.value().json() == written, written.dump());
  nibble::finish_report(r);
  (void)r.chart();
  (void)r.table();
  (void)nibble::recipe_file("rules: []\n", r);
  const nibble::Json config{nibble::Json::Object()};
  (void)nibble::model_card({.base_card = "", .report = r, .config = config});
  return 0;
}
