// nibble show: the facts of a model that is here: config, card, files, revisions. Tensors are
// `nibble inspect`.
#include <algorithm>

#include "base/file.h"
#include "cli/hub/cached_models.h"
#include "cli/options/folders.h"
#include "model/config/config.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

constexpr Option kOptions[] = {
    {"json", "", "", "print one JSON document instead"},
    kRevisionOption,
};

constexpr uint64_t kConfigBytesMax = uint64_t{16} << 20;
constexpr uint64_t kCardBytesMax = uint64_t{4} << 20;

/// `key` of the front matter of a model card (README.md between two lines "---"), where its value
/// stands in the same line; empty: it has none.
std::string card_value(std::string_view card, std::string_view key) {
  if (!card.starts_with("---\n")) return "";
  card.remove_prefix(4);
  card = card.substr(0, std::min(card.find("\n---"), card.size()));
  while (!card.empty()) {
    std::string_view line = card.substr(0, std::min(card.find('\n'), card.size()));
    card.remove_prefix(std::min(line.size() + 1, card.size()));
    if (!line.starts_with(key) || line.substr(key.size(), 1) != ":") continue;
    line.remove_prefix(key.size() + 1);
    while (line.starts_with(' ')) line.remove_prefix(1);
    while (line.ends_with(' ') || line.ends_with('\r')) line.remove_suffix(1);
    return std::string(line);
  }
  return "";
}

struct ShownFile {
  std::string path;
  uint64_t bytes = 0;
};

/// The files below a folder, by name; links are followed. Errors: io.
Result<std::vector<ShownFile>> list_files(const fs::path& folder) {
  std::vector<ShownFile> files;
  std::error_code failure;
  fs::recursive_directory_iterator at(folder, failure);
  for (; !failure && at != fs::recursive_directory_iterator(); at.increment(failure)) {
    std::error_code gone;
    if (at->is_regular_file(gone))
      files.push_back({at->path().lexically_relative(folder).string(), at->file_size(gone)});
  }
  if (failure)
    return make_error(ErrorCode::not_found, {.what = folder.string(),
                                             .expected = "a folder that can be read",
                                             .found = failure.message()});
  std::ranges::sort(files, {}, &ShownFile::path);
  return files;
}

/// The facts as pairs, in the order in which they are shown.
using Facts = std::vector<std::pair<std::string, std::string>>;

std::string shape_text(const ModelConfig& config) {
  const int delta_net = config.count(LayerKind::delta_net);
  std::string text = concat(
      config.layer_count(), " layers (", config.count(LayerKind::attention), " attention",
      delta_net > 0 ? concat(", ", delta_net, " delta net") : "", "), width ", config.hidden);
  if (config.moe)
    text += concat(", ", config.moe->experts, " experts, ", config.moe->top_k, " a token");
  return text;
}

std::string storage_text(const Json& config) {
  const Json* quantization = config.find("quantization_config");
  if (quantization == nullptr) return "not quantized";
  std::string text;
  for (const char* key : {"quant_method", "quant_algo", "format"})
    if (const Json* word = quantization->find(key); word != nullptr && word->is_string())
      text += concat(text.empty() ? "" : ", ", word->as_string());
  return text.empty() ? "quantized" : text;
}

void add_config_facts(const fs::path& folder, Facts& facts) {
  const auto text = read_text_file(folder / "config.json", kConfigBytesMax);
  if (!text.ok()) return;
  const auto json = parse_json(text.value(), "config.json");
  if (!json.ok()) return facts.emplace_back("config", json.error().message), void();
  if (const Json* names = json.value().find("architectures");
      names != nullptr && names->is_array() && !names->as_array().empty() &&
      names->as_array().front().is_string())
    facts.emplace_back("architecture", names->as_array().front().as_string());
  facts.emplace_back("stored as", storage_text(json.value()));
  const auto config = ModelConfig::parse(json.value());
  if (!config.ok()) return facts.emplace_back("not served", config.error().message), void();
  facts.emplace_back("shape", shape_text(config.value()));
  facts.emplace_back("context", concat(config.value().max_positions, " tokens"));
}

void add_card_facts(const fs::path& folder, Facts& facts) {
  const auto card = read_text_file(folder / "README.md", kCardBytesMax);
  if (!card.ok()) return;
  for (const char* key : {"license", "base_model"})
    if (std::string value = card_value(card.value(), key); !value.empty())
      facts.emplace_back(key[0] == 'l' ? "licence" : "base model", std::move(value));
}

void add_cache_facts(const CachedModel& model, const CachedRevision& shown, Facts& facts) {
  facts.emplace_back("model", model.repository);
  for (const CachedRevision& one : model.revisions) {
    std::string text = one.commit;
    for (const std::string& ref : one.refs) text += concat(" ", ref);
    text += concat(", ", one.files, " files, ", size_text(one.bytes), ", of ",
                   day_text(one.changed_seconds));
    const bool is_shown = one.commit == shown.commit;
    facts.emplace_back(is_shown ? "revision" : "also here", std::move(text));
  }
  facts.emplace_back("last used", day_text(model.used_seconds));
  if (model.incomplete_bytes > 0)
    facts.emplace_back("unfinished", concat(size_text(model.incomplete_bytes),
                                            " of files; `nibble "
                                            "pull` goes on"));
}

/// The revision asked for, else main, else the newest.
Result<const CachedRevision*> shown_revision(const CachedChoice& choice) {
  const CachedRevision* best = nullptr;
  for (const CachedRevision& one : choice.model.revisions) {
    const bool main = std::ranges::find(one.refs, "main") != one.refs.end();
    const bool asked = !choice.commit.empty() && one.commit == choice.commit;
    if (best == nullptr || asked || (choice.commit.empty() && main)) best = &one;
    if (asked) break;
  }
  if (best != nullptr) return best;
  return make_error(ErrorCode::not_found,
                    {.what = choice.model.repository,
                     .expected = "a revision in the cache",
                     .found = "none",
                     .advice = concat("`nibble pull ", choice.model.repository, "` goes on")});
}

std::string facts_text(const Facts& facts, const std::vector<ShownFile>& files) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& [name, value] : facts) rows.push_back({name, value});
  uint64_t total = 0;
  std::vector<std::vector<std::string>> list;
  for (const ShownFile& file : files) {
    total += file.bytes;
    list.push_back({"", size_text(file.bytes), file.path});
  }
  rows.push_back({"files", concat(files.size(), ", ", size_text(total))});
  return table_text(rows, {}) + table_text(list, {1});
}

Json facts_json(const Facts& facts, const std::vector<ShownFile>& files) {
  Json out{Json::Object{}};
  Json others{Json::Array{}};
  for (const auto& [name, value] : facts) {
    if (name == "also here")
      others.push_back(value);
    else
      out.set(name, value);
  }
  out.set("other revisions", std::move(others));
  Json list{Json::Array{}};
  for (const ShownFile& file : files)
    list.push_back(json_object({{"path", file.path}, {"bytes", file.bytes}}));
  out.set("files", std::move(list));
  return out;
}

Result<int> run(const Arguments& arguments, Terminal& terminal) {
  const std::string& word = arguments.positional(0);
  Facts facts;
  fs::path folder = word;
  std::error_code failure;
  if (!fs::is_directory(word, failure)) {
    const CachedChoice choice = TRY(find_cached(arguments));
    const CachedRevision* revision = TRY(shown_revision(choice));
    add_cache_facts(choice.model, *revision, facts);
    folder = choice.model.home / "snapshots" / revision->commit;
  }
  facts.emplace_back("folder", folder.string());
  add_config_facts(folder, facts);
  add_card_facts(folder, facts);
  const std::vector<ShownFile> files = TRY(list_files(folder));
  TRY(terminal.out(arguments.enabled("json") ? facts_json(facts, files).dump_pretty()
                                             : facts_text(facts, files)));
  return kExitOk;
}

}  // namespace

const Verb kShowVerb = {.name = "show",
                        .positionals = "DIR|ORG/NAME",
                        .summary =
                            "Shows the facts of a model that is here: config, card, files, "
                            "revisions",
                        .options = kOptions,
                        .run = run};

}  // namespace nibble
