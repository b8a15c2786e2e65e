// Strict TOML for files that a person writes: a parsed document, and places in it for messages.
// toml++ is seen through this header alone. What the keys mean is the business of the readers.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

// The library asserts where a file may break it (a time that does not begin with a digit), and
// takes the same for impossible in a release build. Here such a place is an exception, in every
// build.
namespace nibble {
[[noreturn]] void fail_broken_toml();
}
#pragma push_macro("NDEBUG")
#undef NDEBUG
#define TOML_ASSERT(expr) ((expr) ? static_cast<void>(0) : ::nibble::fail_broken_toml())
#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>
#pragma pop_macro("NDEBUG")

namespace nibble {

/// quote: the message may repeat a piece of the file. hide: it may not, for files with secrets.
enum class TomlErrors : uint8_t { quote, hide };

/// The document of `text`. Errors: invalid_argument with `source` and the line.
Result<toml::table> parse_toml(std::string_view text, std::string_view source,
                               TomlErrors errors = TomlErrors::quote);

/// A node of the document called `source`.
struct TomlPlace {
  std::string_view source;
  const toml::node* node;

  /// "source line 3".
  std::string line() const { return line_of(node->source().begin.line); }
  /// "source line 3: what", as every message begins.
  std::string of(std::string_view what) const { return concat(line(), ": ", what); }
  std::string line_of(uint32_t number) const { return concat(source, " line ", number); }
};

/// "place: what: expected E, found F; advice".
Error toml_error(const TomlPlace& place, std::string_view what, std::string_view expected,
                 std::string_view found, std::string_view advice = {});

/// "a list", "a whole number": for messages.
std::string_view toml_type(const toml::node& node);

/// Any TOML but dates as JSON. Depth is bounded by the parser. Errors name `key`.
Result<Json> toml_to_json(const TomlPlace& place, std::string_view key);

/// In double quotes, cut after 80 bytes: for messages.
std::string quoted_text(std::string_view text);

}  // namespace nibble
