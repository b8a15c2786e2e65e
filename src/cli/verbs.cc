// The verbs of the program, in the order of its help.
#include "cli/verb.h"

namespace nibble {

namespace {

constexpr const Verb* kVerbs[] = {
    &kQuantizeVerb,   &kVerifyVerb,     &kInspectVerb,      &kConvertVerb,       &kRenderVerb,
    &kTokenMapVerb,   &kRunVerb,        &kChatVerb,         &kScoreVerb,         &kEvalVerb,
    &kServeVerb,      &kConnectVerb,    &kSynthVerb,        &kPlanVerb,          &kDoctorVerb,
    &kPullVerb,       &kLsVerb,         &kRmVerb,           &kShowVerb,          &kPushVerb,
    &kBenchServeVerb, &kBenchModelVerb, &kBenchStartupVerb, &kBenchQuantizeVerb, &kBenchFormatsVerb,
    &kManVerb,        &kCompletionVerb};

}  // namespace

std::span<const Verb* const> all_verbs() { return kVerbs; }

std::string verb_key(const Verb& verb) {
  std::string key(verb.name);
  std::ranges::replace(key, ' ', '-');
  return key;
}

std::vector<std::pair<std::string_view, const Verb*>> second_words(std::string_view first) {
  std::vector<std::pair<std::string_view, const Verb*>> words;
  for (const Verb* verb : kVerbs)
    if (verb->name.size() > first.size() && verb->name.starts_with(first) &&
        verb->name[first.size()] == ' ')
      words.emplace_back(verb->name.substr(first.size() + 1), verb);
  return words;
}

std::vector<std::string_view> first_words() {
  std::vector<std::string_view> words;
  for (const Verb* verb : kVerbs) {
    const std::string_view word = verb->name.substr(0, verb->name.find(' '));
    if (std::ranges::find(words, word) == words.end()) words.push_back(word);
  }
  return words;
}

const Verb* find_verb(std::span<const std::string> words) {
  if (words.empty()) return nullptr;
  const std::string two = words.size() < 2 ? "" : concat(words[0], " ", words[1]);
  for (const Verb* verb : kVerbs)
    if (verb->name == words[0] || verb->name == two) return verb;
  return nullptr;
}

}  // namespace nibble
