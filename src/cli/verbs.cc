// The verbs of the program, in the order of its help.
#include "cli/verb.h"

namespace nibble {

namespace {

constexpr const Verb* kVerbs[] = {
    &kQuantizeVerb,      &kVerifyVerb,     &kInspectVerb,    &kConvertVerb,
    &kRenderVerb,        &kRunVerb,        &kChatVerb,       &kScoreVerb,
    &kServeVerb,         &kConnectVerb,    &kSynthVerb,      &kPlanVerb,
    &kDoctorVerb,        &kPullVerb,       &kLsVerb,         &kRmVerb,
    &kShowVerb,          &kBenchServeVerb, &kBenchModelVerb, &kBenchStartupVerb,
    &kBenchQuantizeVerb, &kManVerb,        &kCompletionVerb};

}  // namespace

std::span<const Verb* const> all_verbs() { return kVerbs; }

const Verb* find_verb(std::span<const std::string> words) {
  if (words.empty()) return nullptr;
  const std::string two = words.size() < 2 ? "" : concat(words[0], " ", words[1]);
  for (const Verb* verb : kVerbs)
    if (verb->name == words[0] || verb->name == two) return verb;
  return nullptr;
}

}  // namespace nibble
