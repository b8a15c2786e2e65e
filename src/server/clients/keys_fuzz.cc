// Fuzz entry: one file of keys. What is read has rules within their bounds, each under another
// name; anything else is refused in one line. Filters that would start a program or ask a host are
// left out: a fuzzer must not name them.
#include "base/sha256.h"
#include "server/clients/keys.h"

namespace {

using namespace nibble;

/// True if a text could name a filter of another kind than a file of patterns.
bool reaches_out(std::string_view text) {
  return text.find("exec") != text.npos || text.find("http") != text.npos ||
         text.find("\\u") != text.npos;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (reaches_out(text)) return 0;
  FilterStore filters([](std::string_view) {});
  Keys keys;
  const auto read = keys.add_lines(text, "fuzz", filters);
  if (!read.ok()) {
    CHECK(read.error().message.find('\n') == std::string::npos, read.error().message);
    return 0;
  }
  CHECK(!keys.empty(), "a file without a key was taken");
  for (const char* key : {"sesame", "open"}) {  // those of the corpus
    const auto rules = keys.find(key);
    if (rules == nullptr) continue;
    CHECK(!rules->name.empty() && rules->sha256 == sha256_hex(key), rules->name);
    CHECK(rules->weight >= 0.01 && rules->weight <= 100.0, rules->weight);
    CHECK(rules->concurrent_max >= 0 && rules->requests_per_minute >= 0, rules->name);
    CHECK(rules->tokens_per_minute >= 0, rules->tokens_per_minute);
    CHECK(rules->priority_least <= rules->priority_most, rules->priority_least);
  }
  return 0;
}
