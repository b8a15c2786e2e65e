// Fuzz entry: any bytes as a regular expression and as a JSON Schema. A pattern becomes an
// automaton and an accepted schema a grammar, or there is an error of one line.
#include <cstdint>

#include "grammar/pattern_reader.h"
#include "grammar/schema_check.h"
#include "grammar/schema_grammar.h"

namespace {

template <typename T>
void check_error(const nibble::Result<T>& result) {
  if (result.ok()) return;
  CHECK(!result.error().message.empty());
  CHECK(result.error().message.find('\n') == std::string::npos, result.error().message);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kBytesMax = 4096;
  if (size > kBytesMax) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto pattern = nibble::read_pattern(text);
  check_error(pattern);
  if (pattern.ok()) check_error(nibble::Language::of(pattern.value()));
  const auto schema = nibble::parse_json(text, "fuzz");
  if (!schema.ok()) return 0;
  const auto sound = nibble::check_schema(schema.value());
  check_error(sound);
  if (sound.ok()) check_error(nibble::schema_grammar(schema.value(), 24));
  return 0;
}
