// The YAML of calibration mixes. yaml-cpp stays in this file and in recipe.cc.
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <optional>

#include "quantize/calibrate/calibration_data.h"
#include "quantize/calibrate/calibration_record.h"

namespace nibble {
namespace {

constexpr size_t kMixBytesMax = size_t{1} << 20;
constexpr size_t kSourcesMax = 64;

class MixReader {
 public:
  MixReader(std::string_view source, std::filesystem::path folder)
      : source_(source), folder_(std::move(folder)) {}
  Result<CalibrationRequest> read(const YAML::Node& root) const;

 private:
  using Names = std::initializer_list<std::string_view>;
  Error wrong(const YAML::Node& node, const ErrorParts& parts) const;
  Result<void> check_keys(const YAML::Node& map, Names keys) const;
  Result<std::string> text(const YAML::Node& map, const char* key) const;
  Result<int64_t> number(const YAML::Node& map, const char* key, int64_t fallback) const;
  Result<CalibrationSource> entry(const YAML::Node& node) const;

  std::string source_;
  std::filesystem::path folder_;
};

Error MixReader::wrong(const YAML::Node& node, const ErrorParts& parts) const {
  return make_error(
      ErrorCode::invalid_argument,
      {.what = concat(source_, " line ", std::max(node.Mark().line, 0) + 1, ": ", parts.what),
       .expected = parts.expected,
       .found = parts.found,
       .advice = parts.advice});
}

Result<void> MixReader::check_keys(const YAML::Node& map, Names keys) const {
  std::string known;
  for (const std::string_view key : keys) known += concat(known.empty() ? "" : ", ", key);
  if (!map.IsMap()) return wrong(map, {.what = "mix", .expected = concat("lines of ", known)});
  std::vector<std::string> seen;
  for (const auto& member : map) {
    const std::string key = member.first.IsScalar() ? member.first.Scalar() : "?";
    if (std::ranges::find(seen, key) != seen.end())
      return wrong(member.first, {.what = concat("key \"", key, "\" appears twice")});
    seen.push_back(key);
    if (std::ranges::find(keys, key) == keys.end())
      return wrong(member.first, {.what = concat("unknown key \"", key, "\""), .expected = known});
  }
  return {};
}

Result<std::string> MixReader::text(const YAML::Node& map, const char* key) const {
  const YAML::Node value = map[key];
  if (!value) return wrong(map, {.what = concat("key \"", key, "\" is missing")});
  if (!value.IsScalar() || value.Scalar().empty())
    return wrong(value, {.what = concat("\"", key, "\""), .expected = "a word or a line"});
  return value.Scalar();
}

Result<int64_t> MixReader::number(const YAML::Node& map, const char* key, int64_t fallback) const {
  const YAML::Node value = map[key];
  if (!value) return fallback;
  int64_t number = 0;
  if (value.IsScalar() && YAML::convert<int64_t>::decode(value, number) && number >= 0)
    return number;
  return wrong(value, {.what = concat("\"", key, "\""), .expected = "a whole number"});
}

Result<CalibrationSource> MixReader::entry(const YAML::Node& node) const {
  TRY(check_keys(node, {"file", "samples", "map"}));
  const std::string file = TRY(text(node, "file"));
  CalibrationSource source = TRY(parse_calibration_sources(file)).front();
  source.file = folder_ / source.file;
  source.samples = TRY(number(node, "samples", source.samples));
  if (!node["map"]) return source;
  if (!node["map"].IsMap())
    return wrong(node["map"], {.what = "\"map\"", .expected = "lines like prompt: query"});
  for (const auto& member : node["map"]) {
    const std::string name = member.first.IsScalar() ? member.first.Scalar() : "?";
    if (!is_record_field(name) || !member.second.IsScalar())
      return wrong(member.first, {.what = concat("\"", name, "\""),
                                  .expected = "a known field, as in prompt: query"});
    source.fields.emplace(name, member.second.Scalar());
  }
  return source;
}

Result<CalibrationRequest> MixReader::read(const YAML::Node& root) const {
  TRY(check_keys(root, {"name", "about", "length", "samples", "seed", "sources"}));
  CalibrationRequest request;
  request.mix = TRY(text(root, "name"));
  TRY(text(root, "about"));
  request.length = TRY(number(root, "length", request.length));
  request.samples = TRY(number(root, "samples", request.samples));
  request.seed = static_cast<uint64_t>(TRY(number(root, "seed", 0)));
  const YAML::Node sources = root["sources"];
  if (!sources || !sources.IsSequence() || sources.size() == 0 || sources.size() > kSourcesMax)
    return wrong(root, {.what = "\"sources\"", .expected = concat("a list of 1 to ", kSourcesMax)});
  for (const YAML::Node& node : sources) request.sources.push_back(TRY(entry(node)));
  return request;
}

Result<CalibrationRequest> read_document(std::string_view text, std::string_view source,
                                         const std::filesystem::path& folder) {
  try {
    return MixReader(source, folder).read(YAML::Load(std::string(text)));
  } catch (const YAML::Exception& failure) {
    return Error{ErrorCode::corrupt,
                 concat(source, " line ", failure.mark.line + 1, ": ", failure.msg)};
  }
}

}  // namespace

Result<CalibrationRequest> parse_calibration_mix(std::string_view text, std::string_view source,
                                                 const std::filesystem::path& folder) {
  if (text.size() > kMixBytesMax)
    return make_error(ErrorCode::invalid_argument,
                      {.what = source, .expected = concat("at most ", kMixBytesMax, " bytes")});
  auto mix = read_document(text, source, folder);
  if (mix.ok()) return mix;
  return one_line(mix.error());
}

}  // namespace nibble
