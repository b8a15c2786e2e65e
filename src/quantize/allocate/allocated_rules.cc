// Names are matched exactly, but for the numbers of experts.
#include "quantize/allocate/allocated_rules.h"

#include <map>
#include <set>

#include "quantize/recipe/model_linears.h"
#include "quantize/report/text_of.h"

namespace nibble {
namespace {

/// A pattern of all experts of the list, of those linears that are among these.
std::string experts_pattern(const std::string& list,
                            const std::vector<const PlannedLinear*>& linears) {
  std::string pattern = "re:";
  for (const char c : list) pattern += c == '.' ? std::string("\\.") : std::string(1, c);
  std::set<std::string_view> names;
  for (const PlannedLinear* linear : linears) names.insert(last_part(linear->source.module));
  std::string words;
  for (const std::string_view name : names) words += concat(words.empty() ? "" : "|", name);
  return concat(pattern, "\\.\\d+\\.(", words, ")$");
}

/// The lines of a rule for a scheme, as either dialect has it.
std::string scheme_lines(const QuantScheme& scheme, float input_scale) {
  const std::string scale = text_of("    input_scale: %.17g\n", static_cast<double>(input_scale));
  if (scheme.weights == WeightFormat::nvfp4)
    return scheme.activations == ActivationFormat::nvfp4
               ? concat("    weights: nvfp4\n    activations: nvfp4\n", scale)
               : "    weights: nvfp4\n";
  if (scheme.weights == WeightFormat::fp8_block) return "    weights: fp8-block\n";
  return concat("    weights: fp8\n", scale);
}

}  // namespace

std::string_view last_part(std::string_view module) { return module.substr(module.rfind('.') + 1); }

void add_rules(const std::vector<const PlannedLinear*>& linears, const QuantScheme& scheme,
               std::string& text) {
  std::map<std::string, std::vector<const PlannedLinear*>> lists;
  for (const PlannedLinear* linear : linears) {
    const std::string list = expert_list(linear->source.module);
    if (!list.empty()) {
      lists[list].push_back(linear);
      continue;
    }
    text += concat("  - match: ", linear->source.module, "\n",
                   scheme_lines(scheme, linear->becomes.input_scale));
  }
  for (const auto& [list, experts] : lists)
    text += concat("  - match: '", experts_pattern(list, experts), "'\n",
                   scheme_lines(scheme, experts.front()->becomes.input_scale));
}

}  // namespace nibble
