// Choice and words; the folders are read by hub/cache_scan.h.
#include "cli/hub/cached_models.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>

#include "cli/hub/hub_options.h"
#include "cli/options/folders.h"

namespace nibble {
namespace {

constexpr size_t kShortCommit = 7;

Error unknown_model(const std::string& word, std::string_view found) {
  return make_error(ErrorCode::not_found, {.what = concat("model \"", word, "\""),
                                           .expected = "a model of the Hugging Face cache",
                                           .found = found,
                                           .advice = "`nibble ls` lists them"});
}

Result<std::string> commit_named(const CachedModel& model, const std::string& revision) {
  std::string known;
  for (const CachedRevision& one : model.revisions) {
    const bool named = std::ranges::find(one.refs, revision) != one.refs.end();
    const bool begins = revision.size() >= kShortCommit && one.commit.starts_with(revision);
    if (named || begins) return one.commit;
    known += concat(known.empty() ? "" : ", ", one.commit.substr(0, kShortCommit));
    for (const std::string& ref : one.refs) known += concat(" (", ref, ")");
  }
  return make_error(ErrorCode::not_found,
                    {.what = concat("revision ", revision, " of ", model.repository),
                     .expected = "one of the cache",
                     .found = known.empty() ? "none there" : known});
}

}  // namespace

Result<CachedChoice> find_cached(const Arguments& arguments) {
  const std::string& word = arguments.positional(0);
  auto name = parse_hub_name(word);
  if (!name) name = TRY(find_hub_alias(hub_cache(), word));
  if (!name) return unknown_model(word, "none of that name");
  const std::string asked = arguments.text(kRevisionOption.name).value_or("");
  if (name->revision.empty()) name->revision = asked;
  TRY(check_hub_revision(*name));
  std::vector<CachedModel> models = TRY(scan_cache(hub_cache()));
  const auto found = std::ranges::find(models, name->repository, &CachedModel::repository);
  if (found == models.end()) return unknown_model(word, concat("none in ", hub_cache().string()));
  CachedChoice choice{.model = std::move(*found)};
  if (!name->revision.empty()) choice.commit = TRY(commit_named(choice.model, name->revision));
  return choice;
}

std::string day_text(int64_t seconds) {
  if (seconds == 0) return "-";
  const std::time_t time = seconds;
  std::tm parts = {};
  std::array<char, 16> text = {};
  if (::localtime_r(&time, &parts) == nullptr) return "-";
  const size_t length = std::strftime(text.data(), text.size(), "%Y-%m-%d", &parts);
  return {text.data(), length};
}

std::string size_text(uint64_t bytes) {
  const bool large = bytes >= 1'000'000'000;
  const auto tenths = std::llround(static_cast<double>(bytes) / (large ? 1e8 : 1e5));
  return concat(tenths / 10, ".", tenths % 10, large ? " GB" : " MB");
}

std::string table_text(const std::vector<std::vector<std::string>>& rows,
                       const std::vector<size_t>& right) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string gap(widths[i] - row[i].size(), ' ');
      const bool to_right = std::ranges::find(right, i) != right.end();
      line += concat(i == 0 ? "" : "  ", to_right ? gap + row[i] : row[i] + gap);
    }
    while (line.ends_with(' ')) line.pop_back();
    text += line + "\n";
  }
  return text;
}

}  // namespace nibble
