// Flags to AnswerPolicy.
#include "cli/serving/answer_options.h"

#include "cli/options/flag_errors.h"

namespace nibble {

Result<AnswerPolicy> read_answer_policy(const Arguments& arguments) {
  FlagErrors errors;
  AnswerPolicy policy;
  policy.answer_reserve =
      static_cast<int32_t>(errors.take(arguments.integer("answer-reserve", 0, int64_t{1} << 24)));
  if (arguments.enabled("strict-fields")) policy.unknown_fields = UnknownFields::refused;
  const std::string name = *arguments.text("reasoning-field");
  const auto field = reasoning_field_of(name);
  if (!field)
    errors.add(
        make_error(ErrorCode::invalid_argument, {.what = "--reasoning-field",
                                                 .expected = "both, reasoning or reasoning_content",
                                                 .found = name}));
  TRY(errors.result());
  policy.reasoning_field = *field;
  return policy;
}

Result<ResponseStoreLimits> read_response_store(const Arguments& arguments) {
  FlagErrors errors;
  ResponseStoreLimits limits;
  limits.responses_max =
      static_cast<size_t>(errors.take(arguments.integer("response-store", 0, 10'000'000)));
  limits.bytes_max = static_cast<size_t>(
      errors.take(arguments.integer("response-store-max-bytes", 1, int64_t{1} << 44)));
  TRY(errors.result());
  return limits;
}

Result<FilterOptions> read_filters(const Arguments& arguments, const FilterReport& report) {
  FilterOptions options;
  const std::filesystem::path ca = arguments.text("filter-ca").value_or("");
  if (!ca.empty()) TRY(check_filter_ca(ca));
  options.store = std::make_shared<FilterStore>(report, ca);
  const std::string specs = arguments.text("filter").value_or("");
  for (size_t begin = 0; begin < specs.size();) {
    const size_t end = std::min(specs.find(',', begin), specs.size());
    const std::string spec = specs.substr(begin, end - begin);
    if (!spec.empty()) {
      const auto made = options.store->get(spec);
      if (!made.ok()) return Error{made.error().code, concat("--filter: ", made.error().message)};
      add_filters(options.filters, {made.value()});
    }
    begin = end + 1;
  }
  const std::string fail = TRY(arguments.choice("filter-fail", {"open", "closed"}));
  options.fail = fail == "open" ? FilterFail::open : FilterFail::closed;
  options.timeout = std::chrono::seconds(TRY(arguments.integer("filter-timeout", 1, 3600)));
  options.window_bytes =
      static_cast<size_t>(TRY(arguments.integer("filter-window", 1, int64_t{1} << 20)));
  if (arguments.enabled("filter-reasoning")) options.reasoning = FilterReasoning::yes;
  return options;
}

}  // namespace nibble
