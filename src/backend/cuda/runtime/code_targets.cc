// This file compares capabilities and versions, and has the words of its refusals.
#include "backend/cuda/runtime/code_targets.h"

#include <algorithm>
#include <charconv>

namespace nibble::cuda {

namespace {

constexpr int kHopperMajor = 9;

Error refused(std::string_view expected, std::string_view found, std::string_view advice) {
  return make_error(
      ErrorCode::unsupported,
      {.what = "backend cuda", .expected = expected, .found = found, .advice = advice});
}

std::string version_text(int version) {
  return concat("CUDA ", version / 1000, ".", version % 1000 / 10);
}

/// Parses a target such as "90a-real".
Result<CodeTarget> parse_target(std::string_view text) {
  const auto bad = [&] {
    return make_error(ErrorCode::invalid_argument,
                      {.what = "a target of the CUDA code",
                       .expected = "a form such as 90a-real or 80-virtual",
                       .found = concat("\"", text, "\"")});
  };
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 10 || number > 999) return bad();
  CodeTarget target{.major = number / 10, .minor = number % 10};
  std::string_view rest(end, text.data() + text.size());
  if (rest.starts_with('a')) target.reach = CodeTarget::Reach::exact;
  if (rest.starts_with('f')) target.reach = CodeTarget::Reach::family;
  if (target.reach != CodeTarget::Reach::portable) rest.remove_prefix(1);
  if (rest != "-real" && rest != "-virtual") return bad();
  if (rest == "-virtual") target.kind = CodeTarget::Kind::ptx;
  return target;
}

bool runs_on(const CodeTarget& code, const CardFacts& card) {
  const bool same_major = code.major == card.major;
  const bool not_newer = code.major < card.major || (same_major && code.minor <= card.minor);
  if (code.reach == CodeTarget::Reach::exact) return same_major && code.minor == card.minor;
  if (card.major == kHopperMajor) return false;
  if (code.reach == CodeTarget::Reach::portable && code.kind == CodeTarget::Kind::ptx)
    return not_newer;
  return same_major && not_newer;
}

/// Returns the target that is nearest to the card.
const CodeTarget* best(CodeTarget::Kind kind, const CardFacts& card,
                       const std::vector<CodeTarget>& targets) {
  const CodeTarget* found = nullptr;
  const auto rank = [](const CodeTarget& t) {
    return (t.major * 10 + t.minor) * 10 + static_cast<int>(t.reach);
  };
  for (const CodeTarget& target : targets)
    if (target.kind == kind && runs_on(target, card) &&
        (found == nullptr || rank(target) > rank(*found)))
      found = &target;
  return found;
}

}  // namespace

std::string CodeTarget::name() const {
  constexpr std::string_view kLetters[] = {"", "f", "a"};
  return concat(kind == Kind::machine ? "sm_" : "PTX compute_", major, minor,
                kLetters[static_cast<size_t>(reach)]);
}

Result<std::vector<CodeTarget>> parse_code_targets(std::string_view list) {
  std::vector<CodeTarget> targets;
  while (!list.empty()) {
    const std::string_view word = list.substr(0, list.find(','));
    targets.push_back(TRY(parse_target(word)));
    list.remove_prefix(std::min(list.size(), word.size() + 1));
  }
  return targets;
}

std::string code_targets_text(const std::vector<CodeTarget>& targets) {
  std::string text;
  for (const CodeTarget& target : targets) text += concat(text.empty() ? "" : ", ", target.name());
  return text;
}

Result<void> check_driver(int driver, int toolkit) {
  if (driver == 0) return refused("an NVIDIA driver", "none", "use --backend cpu");
  if (driver / 1000 >= toolkit / 1000) return {};
  return refused(concat("a driver for CUDA ", toolkit / 1000, ".0 or newer"),
                 concat("one for ", version_text(driver)),
                 "update the driver, or use --backend cpu");
}

Result<CodeTarget> code_for(const CardFacts& card, const std::vector<CodeTarget>& targets,
                            int toolkit) {
  TRY(check_driver(card.driver, toolkit));
  if (const CodeTarget* code = best(CodeTarget::Kind::machine, card, targets)) return *code;
  const CodeTarget* ptx = best(CodeTarget::Kind::ptx, card, targets);
  const std::string found =
      concat(card.name, " with compute capability ", card.major, ".", card.minor);
  if (ptx == nullptr)
    return refused(
        concat("a card that this program has code for (", code_targets_text(targets), ")"), found,
        "build it for this card (cmake --preset cuda), or use --backend cpu");
  if (card.driver >= toolkit) return *ptx;
  return refused(
      concat("a driver for ", version_text(toolkit), " or newer, which compiles the ", ptx->name(),
             " of this program for a card it has no machine code for"),
      concat(found, " and a driver for ", version_text(card.driver)),
      "update the driver, build for this card (cmake --preset cuda), or use --backend cpu");
}

}  // namespace nibble::cuda
