// Choosing records by seed and cutting them to length. Two walks over a file: one counts and
// hashes, one reads what was chosen, so that a file of any size needs the memory of a line.
#include "quantize/calibrate/calibration_data.h"

#include <algorithm>
#include <fstream>
#include <numeric>
#include <random>

#include "base/file.h"
#include "base/sha256.h"
#include "quantize/calibrate/calibration_record.h"

namespace nibble {
namespace {

constexpr size_t kLineBytesMax = size_t{64} << 20;
constexpr uint64_t kTextBytesMax = uint64_t{256} << 20;

Error source_error(const std::filesystem::path& file, const ErrorParts& parts) {
  return one_line(make_error(ErrorCode::invalid_argument,
                             {.what = concat("calibration file ", file.string(), ": ", parts.what),
                              .expected = parts.expected,
                              .found = parts.found,
                              .advice = parts.advice}));
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

/// `count` of `total` indices, ascending, the same for a seed on every machine.
std::vector<int64_t> choose(int64_t total, int64_t count, uint64_t seed) {
  std::vector<int64_t> all(static_cast<size_t>(total));
  std::iota(all.begin(), all.end(), 0);
  if (count >= total) return all;
  std::mt19937_64 random(seed);
  for (size_t i = 0; i < static_cast<size_t>(count); ++i)
    std::swap(all[i], all[i + random() % (all.size() - i)]);
  all.resize(static_cast<size_t>(count));
  std::ranges::sort(all);
  return all;
}

class SourceReader {
 public:
  SourceReader(const CalibrationRequest& request, size_t index, const RecordEncoder& encoder,
               CalibrationData& data)
      : request_(request),
        source_(request.sources[index]),
        index_(index),
        encoder_(encoder),
        data_(data) {
    report_.file = source_.file.filename().string();
  }
  Result<void> read();

 private:
  int64_t wanted() const;
  Result<void> read_text();
  Result<void> read_lines();
  Result<void> count_lines();
  Result<void> take_line(const std::string& line, int64_t number);
  void take(std::vector<int32_t> ids, int64_t record);

  const CalibrationRequest& request_;
  const CalibrationSource& source_;
  size_t index_;
  const RecordEncoder& encoder_;
  CalibrationData& data_;
  SourceReport report_ = {};
};

/// An equal share of what is left to those sources that name no count; the first take the rest.
int64_t SourceReader::wanted() const {
  if (source_.samples > 0) return source_.samples;
  int64_t sharers = 0, before = 0;
  for (size_t i = 0; i < request_.sources.size(); ++i) {
    if (request_.sources[i].samples > 0) continue;
    before += i < index_ ? 1 : 0;
    ++sharers;
  }
  return request_.samples / sharers + (before < request_.samples % sharers ? 1 : 0);
}

void SourceReader::take(std::vector<int32_t> ids, int64_t record) {
  if (ids.empty()) {
    ++report_.skipped;
    report_.skipped_why = "no tokens";
    return;
  }
  if (static_cast<int64_t>(ids.size()) > request_.length) {
    ids.resize(static_cast<size_t>(request_.length));
    ++report_.truncated;
  }
  report_.tokens += static_cast<int64_t>(ids.size());
  ++report_.samples;
  report_.chosen.push_back(record);
  data_.samples.push_back({.ids = std::move(ids), .source = index_, .record = record});
}

Result<void> SourceReader::read_text() {
  const std::string text = TRY(read_text_file(source_.file, kTextBytesMax));
  report_.sha256 = sha256_hex(text);
  const auto ids = TRY(encoder_.encode_text(text));
  const auto length = static_cast<size_t>(request_.length);
  report_.records = static_cast<int64_t>((ids.size() + length - 1) / length);
  for (const int64_t piece : choose(report_.records, wanted(), request_.seed + index_)) {
    const size_t begin = static_cast<size_t>(piece) * length;
    const size_t end = std::min(ids.size(), begin + length);
    take({ids.begin() + static_cast<long>(begin), ids.begin() + static_cast<long>(end)}, piece + 1);
  }
  return {};
}

Result<void> SourceReader::count_lines() {
  std::ifstream in(source_.file, std::ios::binary);
  if (!in)
    return make_error(ErrorCode::not_found,
                      {.what = concat("calibration file ", source_.file.string()),
                       .expected = "a readable file"});
  Sha256 hash;
  for (std::string line; std::getline(in, line);) {
    if (line.size() > kLineBytesMax)
      return source_error(source_.file, {.what = concat("record ", report_.records + 1),
                                         .expected = concat("at most ", kLineBytesMax, " bytes")});
    hash.add(line);
    if (!in.eof()) hash.add("\n");
    if (!is_blank(line)) ++report_.records;
  }
  report_.sha256 = hash.hex();
  return {};
}

Result<void> SourceReader::take_line(const std::string& line, int64_t number) {
  const std::string place = concat(source_.file.string(), " line ", number);
  const Json record = TRY(parse_json(line, place));
  auto ids = encoder_.encode(record, source_.fields);
  if (ids.ok()) {
    take(std::move(ids).value(), number);
  } else if (ids.error().code == ErrorCode::unsupported) {
    ++report_.skipped;
    report_.skipped_why = ids.error().message;
  } else {
    return Error{ids.error().code, concat(place, ": ", ids.error().message)};
  }
  return {};
}

Result<void> SourceReader::read_lines() {
  TRY(count_lines());
  const auto chosen = choose(report_.records, wanted(), request_.seed + index_);
  std::ifstream in(source_.file, std::ios::binary);
  auto next = chosen.begin();
  int64_t record = 0, number = 0;
  for (std::string line; next != chosen.end() && std::getline(in, line);) {
    ++number;
    if (is_blank(line)) continue;
    if (record++ != *next) continue;
    ++next;
    TRY(take_line(line, number));
  }
  return {};
}

Result<void> SourceReader::read() {
  if (source_.file.extension() == ".txt") {
    TRY(read_text());
  } else {
    TRY(read_lines());
  }
  if (report_.records == 0)
    return source_error(source_.file, {.what = "is empty", .expected = "records"});
  if (report_.samples == 0)
    return source_error(source_.file,
                        {.what = concat("none of ", report_.skipped, " records can be used"),
                         .found = report_.skipped_why});
  data_.sources.push_back(std::move(report_));
  return {};
}

std::vector<std::string_view> split_commas(std::string_view text) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace

int64_t CalibrationData::tokens() const {
  int64_t total = 0;
  for (const SourceReport& source : sources) total += source.tokens;
  return total;
}

int64_t CalibrationData::longest() const {
  size_t longest = 0;
  for (const CalibrationSample& sample : samples) longest = std::max(longest, sample.ids.size());
  return static_cast<int64_t>(longest);
}

std::string CalibrationData::hash() const {
  Sha256 hash;
  for (const CalibrationSample& sample : samples) {
    const auto count = static_cast<int64_t>(sample.ids.size());
    hash.add(std::as_bytes(std::span(&count, 1)));
    hash.add(std::as_bytes(std::span(sample.ids)));
  }
  return hash.hex();
}

Json CalibrationData::json() const {
  Json out;
  if (!request.mix.empty()) out.set("mix", request.mix);
  out.set("seed", request.seed);
  out.set("length", request.length);
  out.set("samples", samples.size());
  out.set("tokens", tokens());
  out.set("sha256_of_ids", hash());
  Json list{Json::Array{}};
  for (const SourceReport& source : sources) {
    Json entry;
    entry.set("file", source.file);
    entry.set("sha256", source.sha256);
    entry.set("records", source.records);
    entry.set("samples", source.samples);
    entry.set("tokens", source.tokens);
    entry.set("truncated", source.truncated);
    entry.set("skipped", source.skipped);
    if (!source.skipped_why.empty()) entry.set("skipped_why", source.skipped_why);
    Json chosen{Json::Array{}};
    for (const int64_t record : source.chosen) chosen.push_back(record);
    entry.set("chosen", std::move(chosen));
    list.push_back(std::move(entry));
  }
  out.set("sources", std::move(list));
  return out;
}

Result<std::vector<CalibrationSource>> parse_calibration_sources(std::string_view text) {
  std::vector<CalibrationSource> sources;
  for (const std::string_view part : split_commas(text)) {
    CalibrationSource source{.file = part};
    const size_t colon = part.rfind(':');
    const std::string_view count = colon == part.npos ? "" : part.substr(colon + 1);
    if (!count.empty() && count.size() < 10 &&
        count.find_first_not_of("0123456789") == count.npos) {
      source.file = part.substr(0, colon);
      source.samples = std::stoll(std::string(count));
    }
    const auto extension = source.file.extension();
    if (extension != ".jsonl" && extension != ".txt")
      return source_error(source.file,
                          {.what = "its kind",
                           .expected = ".jsonl or .txt",
                           .found = extension.string(),
                           .advice = "tools/parquet_to_jsonl.py brings other files in"});
    sources.push_back(std::move(source));
  }
  if (!sources.empty()) return sources;
  return one_line(
      make_error(ErrorCode::invalid_argument,
                 {.what = "calibration", .expected = "FILE.jsonl or FILE.txt", .found = text}));
}

Result<std::map<std::string, std::string, std::less<>>> parse_field_map(std::string_view text) {
  FieldMap fields;
  for (const std::string_view part : split_commas(text)) {
    const size_t equals = part.find('=');
    const std::string_view name = part.substr(0, std::min(equals, part.size()));
    if (equals == part.npos || !is_record_field(name) || equals + 1 == part.size())
      return one_line(make_error(ErrorCode::invalid_argument,
                                 {.what = "field map",
                                  .expected = "pairs like prompt=query of a known name and a field",
                                  .found = part}));
    fields.emplace(name, part.substr(equals + 1));
  }
  return fields;
}

Result<CalibrationData> read_calibration(const CalibrationRequest& request,
                                         const std::filesystem::path& model,
                                         int64_t positions_max) {
  if (request.length < 1 || request.length > positions_max)
    return make_error(ErrorCode::invalid_argument,
                      {.what = "length of a calibration sample",
                       .expected = concat("1 to ", positions_max, ", the model's positions"),
                       .found = concat(request.length)});
  const RecordEncoder encoder = TRY(RecordEncoder::load(model));
  CalibrationData data{.request = request, .samples = {}, .sources = {}};
  for (size_t i = 0; i < request.sources.size(); ++i)
    TRY(SourceReader(request, i, encoder, data).read());
  return data;
}

}  // namespace nibble
