// The language of questions and verdicts, and which kind a spec names.
#include "server/filters/output_filter.h"

#include "base/json.h"

namespace nibble {

std::string_view name_of(FilterPlace place) {
  switch (place) {
    case FilterPlace::prompt:
      return "prompt";
    case FilterPlace::content:
      return "content";
    case FilterPlace::reasoning:
      return "reasoning";
    case FilterPlace::arguments:
      return "arguments";
  }
  CHECK(false, "place ", static_cast<int>(place));
}

std::string FilterQuestion::json(uint64_t id) const {
  return json_object({{"id", Json(static_cast<int64_t>(id))},
                      {"place", Json(name_of(place))},
                      {"text", Json(text)}})
      .dump();
}

FilterVerdict verdict_in(std::string_view json, uint64_t* id) {
  const auto parsed = parse_json(json, "a verdict");
  if (!parsed.ok() || !parsed.value().is_object()) return FilterVerdict::failed;
  if (id != nullptr) {
    const Json* number = parsed.value().find("id");
    if (number == nullptr || !number->is_int()) return FilterVerdict::failed;
    *id = static_cast<uint64_t>(number->as_int());
  }
  const Json* verdict = parsed.value().find("verdict");
  if (verdict == nullptr) return FilterVerdict::failed;
  if (*verdict == Json("pass")) return FilterVerdict::pass;
  return *verdict == Json("hit") ? FilterVerdict::hit : FilterVerdict::failed;
}

Result<std::unique_ptr<OutputFilter>> make_filter(std::string_view spec, FilterReport report,
                                                  const std::filesystem::path& ca) {
  const auto rest = [&](std::string_view prefix) { return spec.substr(prefix.size()); };
  if (spec.starts_with("regex:")) return make_regex_filter(rest("regex:"));
  if (spec.starts_with("exec:")) return make_exec_filter(rest("exec:"), std::move(report));
  const bool url = spec.starts_with("http://") || spec.starts_with("https://");
  if (url || spec.starts_with("http:"))
    return make_http_filter(url ? spec : rest("http:"), std::move(report), ca);
  return make_error(ErrorCode::invalid_argument,
                    {.what = "a filter",
                     .expected = "regex:FILE, exec:PROGRAM or http:URL",
                     .found = Json(spec.substr(0, 200)).dump()});
}

}  // namespace nibble
