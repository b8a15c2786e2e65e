// Digits compared from the left; multiples by the remainder of what was read.
#include "grammar/number_pattern.h"

#include <cmath>

#include "grammar/pattern_reader.h"

namespace nibble {

namespace {

constexpr double kMagnitudeMax = 1e20;
constexpr int64_t kStepMax = 1000;
constexpr int kDigitsMax = 15;  // of a fraction, in bounds and steps

/// A number of at least zero, as digits.
struct Decimal {
  std::string whole;     // without zeros in front; "0"
  std::string fraction;  // without trailing zeros
};

Result<Decimal> decimal_of(double value) {
  char text[64];
  for (int digits = 0; digits <= kDigitsMax; ++digits) {
    std::snprintf(text, sizeof(text), "%.*f", digits, std::fabs(value));
    if (std::strtod(text, nullptr) != std::fabs(value)) continue;
    const std::string made = text;
    const size_t point = made.find('.');
    if (point == std::string::npos) return Decimal{made, ""};
    return Decimal{made.substr(0, point), made.substr(point + 1)};
  }
  return make_error(ErrorCode::invalid_argument,
                    {.what = "the number",
                     .expected = concat("at most ", kDigitsMax, " digits after the point"),
                     .found = concat(value)});
}

std::string any(size_t least, bool more) { return concat("[0-9]{", least, more ? ",}" : "}"); }

std::string digits_between(char low, char high) {
  return low > high ? std::string("[]")
                    : concat("[", std::string(1, low), "-", std::string(1, high), "]");
}

/// Texts of numbers of at least (or more than) `bound`, all of them positive or zero.
std::string above(const Decimal& bound, bool excluded) {
  const std::string tail = "(\\.[0-9]+)?";
  const std::string& whole = bound.whole;
  std::string out = concat("[1-9]", any(whole.size(), true), tail);
  for (size_t i = 0; i < whole.size(); ++i)
    out += concat("|", whole.substr(0, i), digits_between(static_cast<char>(whole[i] + 1), '9'),
                  any(whole.size() - i - 1, false), tail);
  const std::string& fraction = bound.fraction;
  const std::string start = concat("|", whole);
  if (fraction.empty())
    return out + (excluded ? concat(start, "\\.[0-9]*[1-9][0-9]*") : concat(start, tail));
  for (size_t i = 0; i < fraction.size(); ++i)
    out += concat(start, "\\.", fraction.substr(0, i),
                  digits_between(static_cast<char>(fraction[i] + 1), '9'), "[0-9]*");
  return out + concat(start, "\\.", fraction, excluded ? "[0-9]*[1-9][0-9]*" : "[0-9]*");
}

/// Texts of numbers from zero up to (or below) `bound`.
std::string below(const Decimal& bound, bool excluded) {
  const std::string tail = "(\\.[0-9]+)?";
  const std::string& whole = bound.whole;
  std::string out = "[]";
  if (whole.size() > 1) out += concat("|(0|[1-9][0-9]{0,", whole.size() - 2, "})", tail);
  for (size_t i = 0; i < whole.size(); ++i) {
    const char least = i == 0 && whole.size() > 1 ? '1' : '0';
    out += concat("|", whole.substr(0, i), digits_between(least, static_cast<char>(whole[i] - 1)),
                  any(whole.size() - i - 1, false), tail);
  }
  const std::string& fraction = bound.fraction;
  if (fraction.empty()) return excluded ? out : concat(out, "|", whole, "(\\.0+)?");
  out += concat("|", whole);
  for (size_t i = 0; i < fraction.size(); ++i) {
    if (i > 0) out += concat("|", whole, "\\.", fraction.substr(0, i));
    out += concat("|", whole, "\\.", fraction.substr(0, i),
                  digits_between('0', static_cast<char>(fraction[i] - 1)), "[0-9]*");
  }
  return excluded ? out : concat(out, "|", whole, "\\.", fraction, "0*");
}

Result<Language> language_of(const std::string& alternatives) {
  return Language::of(TRY(read_pattern(concat("^(", alternatives, ")$"))));
}

/// Numbers of at least zero (those above zero where `positive`) between two bounds.
Result<Language> magnitudes(const std::optional<Decimal>& low, bool low_excluded,
                            const std::optional<Decimal>& high, bool high_excluded) {
  Language made = TRY(language_of("(0|[1-9][0-9]*)(\\.[0-9]+)?"));
  if (low) {
    const Language from = TRY(language_of(above(*low, low_excluded)));
    made = TRY(Language::both(made, from));
  }
  if (high) {
    const Language to = TRY(language_of(below(*high, high_excluded)));
    made = TRY(Language::both(made, to));
  }
  return made;
}

/// Multiples of step / 10^places: the states are remainders, with the places read so far.
Language multiples(int64_t step, int places) {
  const auto index = [&](int64_t rest, int place) {
    return static_cast<int>(1 + static_cast<int64_t>(place) * step + rest);
  };
  // States: the start; by place, 0 before the point; then a point that was just read.
  const int points = index(0, places + 1);
  std::vector<Language::State> states(static_cast<size_t>(points + step + 1));
  const int zeros = points + static_cast<int>(step);
  const auto digit_edges = [&](int64_t rest, int place) {
    std::vector<Language::Edge> edges;
    for (uint32_t d = 0; d < 10; ++d)
      edges.push_back({{'0' + d, '0' + d}, index((rest * 10 + d) % step, place)});
    return edges;
  };
  const auto divides = [&](int64_t rest, int place) {
    for (int i = place; i < places; ++i) rest = rest * 10 % step;
    return rest == 0;
  };
  states[0].edges = digit_edges(0, 0);
  for (int64_t rest = 0; rest < step; ++rest) {
    for (int place = 0; place <= places; ++place) {
      Language::State& state = states[static_cast<size_t>(index(rest, place))];
      state.accepts = divides(rest, place);
      if (place == 0) {
        state.edges = {{{'.', '.'}, points + static_cast<int>(rest)}};
        const auto more = digit_edges(rest, 0);
        state.edges.insert(state.edges.end(), more.begin(), more.end());
      } else if (place < places) {
        state.edges = digit_edges(rest, place + 1);
      } else if (state.accepts) {
        state.edges = {{{'0', '0'}, zeros}};
      }
    }
    Language::State& point = states[static_cast<size_t>(points + rest)];
    if (places > 0)
      point.edges = digit_edges(rest, 1);
    else if (rest == 0)
      point.edges = {{{'0', '0'}, zeros}};
  }
  states[static_cast<size_t>(zeros)] = {.accepts = true, .edges = {{{'0', '0'}, zeros}}};
  return Language::of_states(std::move(states));
}

Result<Language> multiples_of(double step) {
  const Decimal decimal = TRY(decimal_of(step));
  const std::string digits = decimal.whole + decimal.fraction;
  const int64_t units = digits.size() > 9 ? kStepMax + 1 : std::stoll(digits);
  if (step <= 0 || units > kStepMax)
    return make_error(ErrorCode::invalid_argument,
                      {.what = "multipleOf",
                       .expected = concat("a positive number of the digits 1 to ", kStepMax),
                       .found = concat(step)});
  return multiples(units, static_cast<int>(decimal.fraction.size()));
}

}  // namespace

void NumberRange::at_least(double bound, Bound kind) {
  if (least && (*least > bound || (*least == bound && least_excluded))) return;
  least = bound;
  least_excluded = kind == Bound::excluded;
}

void NumberRange::at_most(double bound, Bound kind) {
  if (most && (*most < bound || (*most == bound && most_excluded))) return;
  most = bound;
  most_excluded = kind == Bound::excluded;
}

bool NumberRange::open() const {
  return !least || !most || *least < *most ||
         (*least == *most && !least_excluded && !most_excluded);
}

Result<Pattern> number_pattern(const NumberRange& range) {
  const std::string whole = "(0|[1-9][0-9]*)";
  const std::string exponent = range.whole ? "" : "(\\.[0-9]+)?([eE][+-]?[0-9]+)?";
  if (!range.bounded()) return read_pattern(concat("^-?", whole, exponent, "$"));
  const bool low = range.least && *range.least >= -kMagnitudeMax;
  const bool high = range.most && *range.most <= kMagnitudeMax;
  if ((low && *range.least > kMagnitudeMax) || (high && *range.most < -kMagnitudeMax))
    return make_error(ErrorCode::invalid_argument,
                      {.what = "a bound", .expected = concat("at most ", kMagnitudeMax)});
  const Decimal zero{"0", ""};
  const Decimal largest = TRY(decimal_of(kMagnitudeMax));
  const double least = low ? *range.least : -kMagnitudeMax;
  const double most = high ? *range.most : kMagnitudeMax;
  const bool lowest = range.least.has_value();
  const bool highest = range.most.has_value();
  std::vector<Language> sides;
  if (most >= 0) {
    const bool from_zero = least < 0;
    const auto end = highest ? std::optional(high ? TRY(decimal_of(most)) : largest) : std::nullopt;
    const Decimal begin = from_zero ? zero : TRY(decimal_of(least));
    sides.push_back(TRY(
        magnitudes(begin, !from_zero && range.least_excluded, end, high && range.most_excluded)));
  }
  if (least < 0) {
    const bool to_zero = most >= 0;
    const Decimal begin = to_zero ? zero : TRY(decimal_of(most));
    const auto end = lowest ? std::optional(low ? TRY(decimal_of(least)) : largest) : std::nullopt;
    sides.push_back(
        TRY(magnitudes(begin, to_zero || range.most_excluded, end, low && range.least_excluded)));
  }
  std::vector<Pattern> made;
  for (size_t i = 0; i < sides.size(); ++i) {
    if (range.whole) {
      const Language wholes = TRY(language_of(whole));
      sides[i] = TRY(Language::both(sides[i], wholes));
    }
    for (const double step : range.multiples_of) {
      const Language multiples = TRY(multiples_of(step));
      sides[i] = TRY(Language::both(sides[i], multiples));
    }
    if (sides[i].empty()) continue;
    const bool negative = least < 0 && i + 1 == sides.size();
    const Pattern digits = TRY(sides[i].pattern());
    made.push_back(negative ? sequence_pattern({text_pattern("-"), digits}) : digits);
  }
  return choice_pattern(std::move(made));
}

}  // namespace nibble
