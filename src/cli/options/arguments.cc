// Values of checked words: text, numbers with units, choices; slips of names.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "base/edit_distance.h"
#include "cli/verb.h"

namespace nibble {

namespace {

constexpr std::string_view kBinarySuffixes = "KMGT";   // powers of 1,024
constexpr std::string_view kDecimalSuffixes = "kmgt";  // powers of 1,000

/// Multiplier of a size suffix; 0 for another letter.
int64_t suffix_scale(char suffix) {
  const bool binary = kBinarySuffixes.find(suffix) != std::string_view::npos;
  const size_t power = (binary ? kBinarySuffixes : kDecimalSuffixes).find(suffix);
  if (power == std::string_view::npos) return 0;
  int64_t scale = 1;
  for (size_t i = 0; i <= power; ++i) scale *= binary ? 1024 : 1000;
  return scale;
}

bool parse_number(std::string_view text, double& value) {
  double scale = 1.0;
  if (!text.empty() && suffix_scale(text.back()) > 0) {
    scale = static_cast<double>(suffix_scale(text.back()));
    text.remove_suffix(1);
  }
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  value *= scale;
  return end.ec == std::errc() && end.ptr == text.data() + text.size() && !text.empty() &&
         std::isfinite(value);
}

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool digits_only(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

/// "25.6": digits on both sides of the point.
bool decimal(std::string_view text) {
  const size_t point = text.find('.');
  return point != text.npos && digits_only(text.substr(0, point)) &&
         digits_only(text.substr(point + 1));
}

/// Advice for a fraction of a power of 1,024.
std::string size_advice(std::string_view text) {
  if (text.empty() || kBinarySuffixes.find(text.back()) == std::string_view::npos) return {};
  const std::string_view digits = text.substr(0, text.size() - 1);
  if (!decimal(digits)) return {};
  const char lower = static_cast<char>(std::tolower(static_cast<unsigned char>(text.back())));
  return concat(text.back(), " is a power of 1,024 and takes whole numbers; ", digits, lower,
                " is decimal");
}

}  // namespace

std::optional<int64_t> read_size(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  const int64_t scale = text.empty() ? 0 : suffix_scale(text.back());
  if (scale == 0) return whole_number(text);
  const bool fractions = kDecimalSuffixes.find(text.back()) != std::string_view::npos;
  const std::string_view digits = text.substr(0, text.size() - 1);
  if (fractions && decimal(digits)) {
    double value = 0.0;
    std::from_chars(digits.data(), digits.data() + digits.size(), value);
    value *= static_cast<double>(scale);
    constexpr double kMost = 9e18;  // the largest value that an int64_t surely holds
    return value <= kMost ? std::optional(static_cast<int64_t>(value)) : std::nullopt;
  }
  if (!digits_only(digits)) return std::nullopt;
  const std::optional<int64_t> count = whole_number(digits);
  int64_t value = 0;
  if (!count || __builtin_mul_overflow(*count, scale, &value)) return std::nullopt;
  return value;
}

const std::string& Arguments::positional(int index) const {
  CHECK(index >= 0 && index < positional_count(), "positional ", index);
  return positionals_[static_cast<size_t>(index)];
}

ValueSource Arguments::source(std::string_view name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? ValueSource::fallback : found->second.source;
}

std::string Arguments::origin(std::string_view name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) return "default";
  switch (found->second.source) {
    case ValueSource::fallback:
      return "default";
    case ValueSource::file:
      return found->second.place;
    case ValueSource::environment:
      return environment_name(name);
    case ValueSource::flag:
      break;
  }
  return concat("--", name);
}

std::vector<std::string> Arguments::overridden(std::string_view name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) return {};
  return {found->second.overridden.rbegin(), found->second.overridden.rend()};
}

bool Arguments::enabled(std::string_view name) const { return text(name) == "true"; }

std::optional<std::string> Arguments::text(std::string_view name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) return std::nullopt;
  return found->second.text;
}

Result<double> Arguments::number(std::string_view name, double least, double most) const {
  const auto value_text = text(name);
  CHECK(value_text.has_value(), "--", name, " has neither a value nor a default");
  double value = 0;
  if (parse_number(*value_text, value) && value >= least && value <= most) return value;
  return make_error(ErrorCode::invalid_argument,
                    {.what = concat("--", name),
                     .expected = concat("a number from ", least, " to ", most),
                     .found = concat("\"", *value_text, "\"")});
}

Result<int64_t> Arguments::integer(std::string_view name, int64_t least, int64_t most) const {
  const auto value_text = text(name);
  CHECK(value_text.has_value(), "--", name, " has neither a value nor a default");
  const std::optional<int64_t> value = read_size(*value_text);
  if (value && *value >= least && *value <= most) return *value;
  return make_error(ErrorCode::invalid_argument,
                    {.what = concat("--", name),
                     .expected = concat("a whole number from ", least, " to ", most),
                     .found = concat("\"", *value_text, "\""),
                     .advice = size_advice(*value_text)});
}

Result<std::string> Arguments::choice(std::string_view name,
                                      std::initializer_list<std::string_view> choices) const {
  const std::string value = text(name).value_or("");
  std::string known;
  for (const auto& choice : choices) {
    if (value == choice) return value;
    known += concat(known.empty() ? "" : ", ", choice);
  }
  return make_error(ErrorCode::invalid_argument, {.what = concat("--", name),
                                                  .expected = concat("one of ", known),
                                                  .found = concat("\"", value, "\"")});
}

std::string_view nearest_name(std::string_view word, std::span<const std::string_view> candidates) {
  std::string_view best;
  constexpr size_t kSlipsMax = 2;  // more letters than this make another word
  size_t best_distance = std::min(kSlipsMax, word.size() / 4) + 1;
  for (const auto& candidate : candidates) {
    const size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace nibble
