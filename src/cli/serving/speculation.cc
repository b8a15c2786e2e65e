// Methods, keys and ranges.
#include "cli/serving/speculation.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/json.h"
#include "cli/drafts/draft_weights.h"
#include "cli/serving/model_loader.h"

namespace nibble {

namespace {

/// The loss of one request of full length is a reason only where there is room for at most so many.
constexpr double kRequests = 4.0;

constexpr std::string_view kFlag = "--speculative-config";

constexpr std::array<std::string_view, 3> kMtpNames = {"mtp", "qwen3_5_mtp", "qwen3_next_mtp"};
constexpr int32_t kMtpTokens = 3;
constexpr std::string_view kRepeats = "prompt_lookup_min";
constexpr std::string_view kAcceptance = "synthetic_acceptance";

struct Number {
  std::string_view key;
  int64_t most;      // tokens of an n-gram draft, at most
  int64_t mtp_most;  // 0: not of MTP
  int32_t Speculation::*direct = nullptr;
  int32_t NgramDrafter::Options::*lookup = nullptr;
};
constexpr std::array<Number, 3> kNumbers = {
    {{.key = "num_speculative_tokens", .most = 16, .mtp_most = 5, .direct = &Speculation::tokens},
     {.key = "prompt_lookup_max",
      .most = 64,
      .mtp_most = 0,
      .lookup = &NgramDrafter::Options::match_max},
     {.key = kRepeats, .most = 64, .mtp_most = 64, .lookup = &NgramDrafter::Options::match_min}}};

Result<void> read_number(const Number& number, const Json& value, Speculation& speculation) {
  const bool mtp = speculation.method == DraftMethod::mtp;
  const bool repeats = mtp && number.key == kRepeats;
  const int64_t most = mtp ? number.mtp_most : number.most;
  const int64_t least = repeats ? 0 : 1;
  if (!value.is_int() || value.as_int() < least || value.as_int() > most)
    return make_error(ErrorCode::invalid_argument,
                      {.what = concat(kFlag, ": ", number.key),
                       .expected = concat("a whole number from ", least, " to ", most),
                       .found = value.dump()});
  const auto count = static_cast<int32_t>(value.as_int());
  if (repeats)
    speculation.repeat_match = count;
  else if (number.direct != nullptr)
    speculation.*number.direct = count;
  else
    speculation.lookup.*number.lookup = count;
  return {};
}

/// Shares of rounds whose first 1, 2, ... drafts are right: they never rise.
Result<void> read_acceptance(const Json& value, Speculation& speculation) {
  constexpr size_t kPlacesMost = 16;
  std::vector<double> shares;
  bool good =
      value.is_array() && !value.as_array().empty() && value.as_array().size() <= kPlacesMost;
  for (size_t i = 0; good && i < value.as_array().size(); ++i) {
    const Json& share = value.as_array()[i];
    const double above = shares.empty() ? 1.0 : shares.back();
    good = share.is_number() && share.as_double() >= 0.0 && share.as_double() <= above;
    if (good) shares.push_back(share.as_double());
  }
  if (!good)
    return make_error(ErrorCode::invalid_argument,
                      {.what = concat(kFlag, ": ", kAcceptance),
                       .expected = "a list of at most 16 numbers from 1 down to 0, none above the "
                                   "one before it",
                       .found = value.dump()});
  speculation.synthetic_acceptance = std::move(shares);
  return {};
}

Result<DraftMethod> read_method(const Json& value) {
  const std::string method = value.is_string() ? value.as_string() : "";
  if (method == "ngram") return DraftMethod::ngram;
  if (std::ranges::find(kMtpNames, method) != kMtpNames.end()) return DraftMethod::mtp;
  return make_error(
      ErrorCode::invalid_argument,
      {.what = concat(kFlag, ": method"),
       .expected = R"("mtp" (or "qwen3_5_mtp", "qwen3_next_mtp") or "ngram" (prompt lookup))",
       .found = value.dump()});
}

/// Kernels of another program that vLLM's draft runs on: of no meaning here.
constexpr std::array<std::string_view, 2> kOfOtherKernels = {"moe_backend", "attention_backend"};

Error unknown_key(DraftMethod method, std::string_view key) {
  return make_error(
      ErrorCode::invalid_argument,
      {.what = concat(kFlag, ": a key"),
       .expected = method == DraftMethod::mtp
                       ? "method, num_speculative_tokens, prompt_lookup_min or "
                         "synthetic_acceptance"
                       : "method, num_speculative_tokens, prompt_lookup_max, prompt_lookup_min or "
                         "synthetic_acceptance",
       .found = key});
}

}  // namespace

Result<Speculation> read_speculation(std::string_view json) {
  const Json parsed = TRY(parse_json(json, std::string(kFlag)));
  if (!parsed.is_object() || parsed.find("method") == nullptr)
    return make_error(ErrorCode::invalid_argument,
                      {.what = kFlag,
                       .expected = R"(a JSON object such as {"method": "mtp"})",
                       .found = std::string(json)});
  Speculation speculation{.method = TRY(read_method(*parsed.find("method"))), .lookup = {}};
  const bool mtp = speculation.method == DraftMethod::mtp;
  if (mtp) speculation.tokens = kMtpTokens;
  for (const Json::Member& member : parsed.as_object()) {
    const bool other_kernels =
        mtp && std::ranges::find(kOfOtherKernels, member.key) != kOfOtherKernels.end();
    if (member.key == "method" || (other_kernels && member.value.is_string())) continue;
    if (member.key == kAcceptance) {
      TRY(read_acceptance(member.value, speculation));
      continue;
    }
    const auto number =
        std::ranges::find_if(kNumbers, [&](const Number& n) { return n.key == member.key; });
    if (number == kNumbers.end() || (mtp && number->mtp_most == 0))
      return unknown_key(speculation.method, member.key);
    TRY(read_number(*number, member.value, speculation));
  }
  const NgramDrafter::Options& lookup = speculation.lookup;
  if (lookup.match_min > lookup.match_max)
    return make_error(ErrorCode::invalid_argument,
                      {.what = concat(kFlag, ": prompt_lookup_min"),
                       .expected = concat("at most prompt_lookup_max, ", lookup.match_max),
                       .found = concat(lookup.match_min)});
  return speculation;
}

Result<std::optional<Speculation>> read_speculation(const Arguments& arguments) {
  const auto json = arguments.text(kSpeculativeOption.name);
  if (!json) return std::optional<Speculation>();
  const Speculation speculation = TRY(read_speculation(*json));
  if (!speculation.synthetic_acceptance.empty() && !wants_random_weights(arguments))
    return make_error(ErrorCode::invalid_argument,
                      {.what = concat(kFlag, ": ", kAcceptance, ", which is not lossless"),
                       .expected = "random weights",
                       .found = "those of a checkpoint",
                       .advice = "use it with --load-format dummy, or leave it out"});
  if (!arguments.enabled(kSpeculationOption.name)) return std::optional<Speculation>();
  return std::optional(speculation);
}

bool speculates_by_default(const Arguments& arguments) {
  return !arguments.text(kSpeculativeOption.name) && arguments.enabled(kSpeculationOption.name);
}

Speculation default_speculation() {
  return {.method = DraftMethod::mtp, .tokens = kMtpTokens, .lookup = {}};
}

Result<std::optional<Speculation>> speculation_of(const Arguments& arguments,
                                                  const ModelConfig& loaded) {
  const auto asked = TRY(read_speculation(arguments));
  if (asked && asked->method == DraftMethod::mtp && loaded.draft_layers == 0)
    return std::optional<Speculation>();
  if (!asked && speculates_by_default(arguments) && loaded.draft_layers > 0)
    return std::optional(default_speculation());
  return asked;
}

std::string speculation_line(const Arguments& arguments, const std::optional<Speculation>& drafts,
                             std::string_view why_not, const ModelConfig& loaded) {
  if (!drafts) return concat("speculation: off, ", why_not);
  if (drafts->method == DraftMethod::ngram)
    return concat("speculation: up to ", drafts->tokens,
                  " tokens that followed earlier in the text");
  return concat("speculation: up to ", drafts->tokens, " tokens of the checkpoint's MTP layer",
                draft_weights_words(loaded),
                speculates_by_default(arguments) ? "; --no-speculation turns it off" : "");
}

std::string lost_to_drafts(const MemoryPlan& without, const MemoryPlan& with) {
  if (with.context_max < without.context_max)
    return concat("the longest request would have ", with.context_max, " tokens instead of ",
                  without.context_max);
  const auto held = [](const MemoryPlan& plan) {
    return std::floor(std::min(plan.full_length_requests(), kRequests));
  };
  if (held(with) >= held(without)) return {};
  return concat("pages would hold ", held(with),
                held(with) == 1.0 ? " request of " : " requests of ", with.context_max,
                " tokens instead of ", held(without));
}

}  // namespace nibble
