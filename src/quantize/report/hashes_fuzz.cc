// Fuzz entry: one quantize_hashes.json, as verify reads it. What is read is written as it was; else
// it is refused in one line.
#include "quantize/report/content_hashes.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto json = nibble::parse_json(text, "fuzz");
  if (!json.ok()) return 0;
  const auto hashes = nibble::ContentHashes::parse(json.value());
  if (!hashes.ok()) {
    CHECK(hashes.error().message.find('\n') == std::string::npos, hashes.error().message);
    return 0;
  }
  const auto again = nibble::parse_json(hashes.value().text(), "written");
  CHECK(again.ok(), again.error().message);
  const auto same = nibble::ContentHashes::parse(again.value());
  CHECK(same.ok() && same.value().text() == hashes.value().text(), hashes.value().text());
  return 0;
}
