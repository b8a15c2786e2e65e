// The verbs of the program, in the order of its help.
#include "cli/verb.h"

namespace nibble {

namespace {

constexpr const Verb* kVerbs[] = {&kQuantizeVerb, &kVerifyVerb,  &kInspectVerb,   &kConvertVerb,
                                  &kRenderVerb,   &kRunVerb,     &kChatVerb,      &kScoreVerb,
                                  &kServeVerb,    &kConnectVerb, &kSynthVerb,     &kPlanVerb,
                                  &kDoctorVerb,   &kPullVerb,    &kLsVerb,        &kRmVerb,
                                  &kShowVerb,     &kManVerb,     &kCompletionVerb};

}  // namespace

std::span<const Verb* const> all_verbs() { return kVerbs; }

const Verb* find_verb(std::string_view name) {
  for (const Verb* verb : kVerbs)
    if (verb->name == name) return verb;
  return nullptr;
}

}  // namespace nibble
