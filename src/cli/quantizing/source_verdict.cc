// Figures by compare.h and compare_papers.h, in words.
#include "cli/quantizing/source_verdict.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "plan/text_table.h"
#include "quantize/verify/compare_papers.h"

namespace nibble {
namespace {

constexpr int64_t kOddShown = 20;

/// ", first NAME" of a list that has one.
std::string first_of(const std::vector<std::string>& names) {
  return names.empty() ? std::string() : concat(", first ", names.front());
}

/// Matrices that were changed after they were rounded.
void judge_rounding(const Comparison& compared, Verdict& verdict) {
  int64_t odd = 0;
  for (const ComparedLinear& linear : compared.linears) {
    if (linear.odd.empty()) continue;
    if (odd++ < kOddShown) verdict.text += concat("      ", linear.module, ": ", linear.odd, "\n");
  }
  verdict.add(odd == 0 ? Standing::ok : Standing::past,
              concat(odd, " matrices were changed after they were rounded"));
}

}  // namespace

void judge_weights(const Comparison& compared, double error_max, Verdict& verdict) {
  std::map<std::string, std::pair<double, double>> kinds;  // squares of errors and weights
  for (const ComparedLinear& linear : compared.linears) {
    kinds[linear.kind].first += linear.error_squares;
    kinds[linear.kind].second += linear.weight_squares;
  }
  for (const auto& [kind, squares] : kinds) {
    const double error = squares.second > 0 ? std::sqrt(squares.first / squares.second) : 0.0;
    verdict.text += concat("      ", kind, ": relative error ", fixed_text(100 * error, 3), " %\n");
  }
  const auto past = std::ranges::count_if(compared.linears, [&](const ComparedLinear& linear) {
    return !(linear.relative_error <= error_max);
  });
  const ComparedLinear* worst = compared.worst();
  verdict.add(past == 0 ? Standing::ok : Standing::past,
              concat(compared.linears.size(), " matrices, relative error ",
                     fixed_text(100 * compared.relative_error(), 3), " %, ", past, " past ",
                     fixed_text(100 * error_max, 1), " %",
                     worst == nullptr ? std::string()
                                      : concat("; worst ", worst->module, " ",
                                               fixed_text(100 * worst->relative_error, 3), " %")));
  verdict.add(compared.changed.empty() ? Standing::ok : Standing::past,
              concat(compared.identical, " other tensors are the source's, ",
                     compared.changed.size(), " are not", first_of(compared.changed)));
  verdict.add(compared.missing.empty() ? Standing::ok : Standing::past,
              concat(compared.missing.size(), " tensors of the source are missing",
                     first_of(compared.missing)));
  if (!compared.added.empty())
    verdict.text +=
        concat("      ", compared.added.size(), " tensors are neither the source's nor a linear's",
               first_of(compared.added), "\n");
  judge_rounding(compared, verdict);
}

Result<void> judge_papers(const Checkpoint& checkpoint, const Checkpoint& source,
                          Verdict& verdict) {
  const PaperComparison compared = TRY(compare_papers(checkpoint, source));
  int64_t wrong = 0;
  for (const Finding& finding : compared.differences) {
    const bool error = finding.severity == Severity::error;
    wrong += error;
    verdict.text +=
        concat("      ", error ? "" : "note: ", finding.subject, ": ", finding.text, "\n");
  }
  verdict.add(wrong == 0 ? Standing::ok : Standing::past,
              concat(compared.keys, " values of config.json and ", compared.files,
                     " other files are the source's, ", wrong, " are not"));
  return {};
}

}  // namespace nibble
