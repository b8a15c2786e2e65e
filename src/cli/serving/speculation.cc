// Keys and ranges.
#include "cli/serving/speculation.h"

#include <algorithm>
#include <array>

#include "base/json.h"

namespace nibble {

namespace {

constexpr std::string_view kFlag = "--speculative-config";

struct Number {
  std::string_view key;
  int64_t most;
  int32_t Speculation::*direct = nullptr;
  int32_t NgramDrafter::Options::*lookup = nullptr;
};
constexpr std::array<Number, 3> kNumbers = {
    {{.key = "num_speculative_tokens", .most = 16, .direct = &Speculation::tokens},
     {.key = "prompt_lookup_max", .most = 64, .lookup = &NgramDrafter::Options::match_max},
     {.key = "prompt_lookup_min", .most = 64, .lookup = &NgramDrafter::Options::match_min}}};

Result<void> read_number(const Number& number, const Json& value, Speculation& speculation) {
  if (!value.is_int() || value.as_int() < 1 || value.as_int() > number.most)
    return make_error(ErrorCode::invalid_argument,
                      {.what = concat(kFlag, ": ", number.key),
                       .expected = concat("a whole number from 1 to ", number.most),
                       .found = value.dump()});
  const auto count = static_cast<int32_t>(value.as_int());
  if (number.direct != nullptr)
    speculation.*number.direct = count;
  else
    speculation.lookup.*number.lookup = count;
  return {};
}

Result<void> check_method(const Json& value) {
  const std::string method = value.is_string() ? value.as_string() : "";
  if (method == "ngram") return {};
  if (method == "mtp" || method.ends_with("_mtp"))
    return make_error(ErrorCode::invalid_argument,
                      {.what = concat(kFlag, " with the method \"", method,
                                      "\" is refused: drafts of the checkpoint's own MTP layer "
                                      "are not built in yet"),
                       .advice = "leave the flag out, or take {\"method\": \"ngram\"}"});
  return make_error(ErrorCode::invalid_argument, {.what = concat(kFlag, ": method"),
                                                  .expected = "\"ngram\" (prompt lookup)",
                                                  .found = value.dump()});
}

}  // namespace

Result<Speculation> read_speculation(std::string_view json) {
  const Json parsed = TRY(parse_json(json, std::string(kFlag)));
  if (!parsed.is_object() || parsed.find("method") == nullptr)
    return make_error(ErrorCode::invalid_argument,
                      {.what = kFlag,
                       .expected = R"(a JSON object such as {"method": "ngram"})",
                       .found = std::string(json)});
  TRY(check_method(*parsed.find("method")));
  Speculation speculation;
  for (const Json::Member& member : parsed.as_object()) {
    const auto number =
        std::ranges::find_if(kNumbers, [&](const Number& n) { return n.key == member.key; });
    if (number != kNumbers.end())
      TRY(read_number(*number, member.value, speculation));
    else if (member.key != "method")
      return make_error(
          ErrorCode::invalid_argument,
          {.what = concat(kFlag, ": a key"),
           .expected = "method, num_speculative_tokens, prompt_lookup_max or prompt_lookup_min",
           .found = member.key});
  }
  const NgramDrafter::Options& lookup = speculation.lookup;
  if (lookup.match_min > lookup.match_max)
    return make_error(ErrorCode::invalid_argument,
                      {.what = concat(kFlag, ": prompt_lookup_min"),
                       .expected = concat("at most prompt_lookup_max, ", lookup.match_max),
                       .found = concat(lookup.match_min)});
  return speculation;
}

}  // namespace nibble
