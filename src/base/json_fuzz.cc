// Fuzz entry: whatever parses must print, and the print must parse back to the same value.
#include <cmath>
#include <cstdint>

#include "base/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto value = nibble::parse_json(text, "fuzz");
  if (!value.ok()) return 0;
  const auto again = nibble::parse_json(value.value().dump(), "fuzz");
  CHECK(again.ok(), again.error().message);
  CHECK(again.value() == value.value(), value.value().dump());
  const auto pretty = nibble::parse_json(value.value().dump_pretty(), "fuzz");
  CHECK(pretty.ok() && pretty.value() == value.value());
  return 0;
}
