// nibble token-map: the most frequent tokens of a text, for --speculative-token-map.
#include <algorithm>
#include <cstdio>
#include <numeric>
#include <set>

#include "base/file.h"
#include "cli/drafts/draft_weights.h"
#include "cli/options/folders.h"
#include "text/tokenizer/tokenizer.h"

namespace nibble {
namespace {

constexpr uint64_t kTextBytesMax = uint64_t{1} << 28;
constexpr uint64_t kConfigBytesMax = uint64_t{16} << 20;

constexpr Option kOptions[] = {
    {"count", "N", "32768",
     "tokens of the map, special ones among them; if the text has fewer, those with the smallest "
     "ids fill it"},
    kRevisionOption,
};

/// The tokens of a map of `count`, by how often each stands in `ids`: the special ones, then the
/// most frequent, of equal ones the smaller.
std::vector<int32_t> most_frequent(std::span<const int32_t> ids, std::vector<int32_t> special,
                                   size_t count, int32_t vocab_rows) {
  std::vector<int64_t> times(static_cast<size_t>(vocab_rows));
  for (const int32_t id : ids) ++times[static_cast<size_t>(id)];
  for (const int32_t id : special) times[static_cast<size_t>(id)] = -1;  // is in it
  std::vector<int32_t> order(times.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::ranges::greater(),
                           [&](int32_t id) { return times[static_cast<size_t>(id)]; });
  std::vector<int32_t> map = std::move(special);
  for (size_t i = 0; map.size() < count; ++i) map.push_back(order[i]);
  std::ranges::sort(map);
  return map;
}

double share_of(std::span<const int32_t> ids, const std::vector<int32_t>& map) {
  const auto known =
      std::ranges::count_if(ids, [&](int32_t id) { return std::ranges::binary_search(map, id); });
  return ids.empty() ? 0.0 : static_cast<double>(known) / static_cast<double>(ids.size());
}

/// The added tokens, which templates and formats are made of, and the stop tokens.
std::vector<int32_t> added_and_stop_tokens(const Tokenizer& tokenizer, const ModelConfig& config) {
  std::set<int32_t> special;
  const int32_t size = std::min(tokenizer.vocab_size(), config.vocab_rows);
  for (int32_t id = 0; id < size; ++id)
    if (tokenizer.is_added(id)) special.insert(id);
  for (const int32_t id : config.stop_ids)
    if (id >= 0 && id < config.vocab_rows) special.insert(id);
  return {special.begin(), special.end()};
}

Result<std::vector<int32_t>> read_tokens(const Arguments& arguments, const Tokenizer& tokenizer,
                                         int32_t vocab_rows) {
  std::vector<int32_t> ids;
  for (int i = 1; i < arguments.positional_count(); ++i) {
    const std::string text = TRY(read_text_file(arguments.positional(i), kTextBytesMax));
    const auto more = TRY(tokenizer.encode(text, SpecialTokens::plain_text));
    ids.insert(ids.end(), more.begin(), more.end());
  }
  std::erase_if(ids, [&](int32_t id) { return id >= vocab_rows; });
  constexpr size_t kTokensMin = 10;  // a tenth is held out
  if (ids.size() >= kTokensMin) return ids;
  return make_error(
      ErrorCode::invalid_argument,
      {.what = "the text", .expected = "at least 10 tokens", .found = concat(ids.size())});
}

Result<int> run(const Arguments& arguments, Terminal& terminal) {
  const auto folder = TRY(first_folder(arguments, terminal, SnapshotNeeds::papers));
  const std::string path = (folder / "config.json").string();
  const std::string text = TRY(read_text_file(path, kConfigBytesMax));
  const Json json = TRY(parse_json(text, path));
  const ModelConfig config = TRY(ModelConfig::parse(json));
  const Tokenizer tokenizer = TRY(Tokenizer::load(folder));
  const std::vector<int32_t> special = added_and_stop_tokens(tokenizer, config);
  const auto least = static_cast<int64_t>(special.size()) + 1;
  const auto count =
      static_cast<size_t>(TRY(arguments.integer("count", least, int64_t{config.vocab_rows})));
  const std::vector<int32_t> ids = TRY(read_tokens(arguments, tokenizer, config.vocab_rows));
  const auto counted = std::span(ids).first(ids.size() - ids.size() / 10);
  const auto held_out = std::span(ids).subspan(counted.size());
  const double share =
      share_of(held_out, most_frequent(counted, special, count, config.vocab_rows));
  std::string list = "[";
  for (const int32_t id : most_frequent(ids, special, count, config.vocab_rows))
    list += concat(list.size() > 1 ? "," : "", id);
  TRY(terminal.out(list + "]\n"));
  char percent[32];
  std::snprintf(percent, sizeof percent, "%.2f", 100.0 * share);
  terminal.err(concat(count, " of ", config.vocab_rows,
                      " tokens; a map of the first nine tenths of ", ids.size(), " tokens has ",
                      percent, " % of the last tenth\n"));
  return kExitOk;
}

}  // namespace

const Verb kTokenMapVerb = {
    .name = "token-map",
    .positionals = "DIR TEXT...",
    .summary = "Prints the most frequent tokens of a text, for serve --speculative-token-map",
    .options = kOptions,
    .run = run};

}  // namespace nibble
