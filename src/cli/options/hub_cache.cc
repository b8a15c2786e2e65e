// models--ORG--NAME/{refs/REVISION, snapshots/COMMIT/FILE -> ../../blobs/HASH}.
#include "cli/options/hub_cache.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "checkpoint/checkpoint_index.h"
#include "checkpoint/safetensors_header.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kRefBytesMax = 4096;

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::string download_advice(const HubName& name) {
  const std::string revision = name.revision.empty() ? std::string() : concat("@", name.revision);
  return concat("`nibble pull ", name.repository, revision, "` gets it; nothing is fetched here");
}

Error not_in_cache(const HubName& name, std::string_view what, std::string_view expected,
                   std::string_view found) {
  return make_error(
      ErrorCode::not_found,
      {.what = what, .expected = expected, .found = found, .advice = download_advice(name)});
}

std::string joined(std::vector<std::string> names) {
  constexpr size_t kShownMax = 8;
  std::ranges::sort(names);
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kShownMax); ++i)
    text += concat(i == 0 ? "" : ", ", names[i]);
  if (names.size() > kShownMax) text += concat(" and ", names.size() - kShownMax, " more");
  return text.empty() ? "none" : text;
}

/// The branches and tags that the cache knows of a model.
std::string known_revisions(const fs::path& refs) {
  std::vector<std::string> names;
  std::error_code failure;
  fs::recursive_directory_iterator at(refs, failure);
  for (; !failure && at != fs::recursive_directory_iterator(); at.increment(failure))
    if (at->is_regular_file(failure)) names.push_back(at->path().lexically_relative(refs).string());
  return joined(std::move(names));
}

/// The commit of the revision: itself, or what the file refs/REVISION says.
Result<std::string> commit_of(const fs::path& home, const HubName& name) {
  const std::string revision = name.revision.empty() ? "main" : name.revision;
  if (is_hub_commit(revision)) return revision;
  const fs::path refs = home / "refs";
  std::error_code failure;
  if (!fs::is_regular_file(refs / revision, failure))
    return not_in_cache(name, concat("revision ", revision, " of ", name.repository),
                        concat("one in ", refs.string()), known_revisions(refs));
  std::string commit = TRY(read_text_file(refs / revision, kRefBytesMax));
  while (!commit.empty() && std::isspace(static_cast<unsigned char>(commit.back())) != 0)
    commit.pop_back();
  if (is_hub_commit(commit)) return commit;
  return make_error(ErrorCode::corrupt, {.what = (refs / revision).string(),
                                         .expected = "the 40 hexadecimal digits of a commit",
                                         .found = concat(commit.size(), " bytes of something else"),
                                         .advice = download_advice(name)});
}

Error missing_file(const HubName& name, const fs::path& snapshot, std::string_view file,
                   std::string_view found) {
  return not_in_cache(
      name, concat(name.repository, " is in the Hugging Face cache in part, ", snapshot.string()),
      file, found);
}

/// Every file of the snapshot is there: links lead to files, the index's shards are listed.
Result<void> check_whole(const fs::path& snapshot, const HubName& name, SnapshotNeeds needs) {
  std::error_code failure;
  fs::directory_iterator at(snapshot, failure);
  for (; !failure && at != fs::directory_iterator(); at.increment(failure)) {
    std::error_code ignored;
    const std::string file = at->path().filename().string();
    const bool weights = file.ends_with(".safetensors");
    if (needs == SnapshotNeeds::papers && weights) continue;
    if (at->is_symlink(ignored) && !fs::exists(at->path(), ignored))
      return missing_file(name, snapshot, file,
                          concat("a link to ", fs::read_symlink(at->path(), ignored).string(),
                                 ", where nothing is"));
  }
  if (failure) return system_error("cannot list", snapshot);
  if (!fs::exists(snapshot / kConfigFile, failure))
    return missing_file(name, snapshot, kConfigFile, "none");
  if (needs == SnapshotNeeds::papers || !fs::exists(snapshot / kIndexFile, failure)) return {};
  const std::string text = TRY(read_text_file(snapshot / kIndexFile, kSafetensorsHeaderBytesMax));
  const CheckpointIndex index = TRY(parse_checkpoint_index(text));
  std::vector<std::string> missing;
  for (const std::string& shard : index.files)
    if (!fs::exists(snapshot / shard, failure)) missing.push_back(shard);
  if (missing.empty()) return {};
  const size_t there = index.files.size() - missing.size();
  return missing_file(name, snapshot, concat(index.files.size(), " shards of its index"),
                      concat(there, ", without ", joined(std::move(missing))));
}

std::string text_of(HubEnvironment environment, const std::string& name) {
  const char* value = environment(name.c_str());
  return value == nullptr ? std::string() : std::string(value);
}

/// Replaces a leading ~, and $NAME and ${NAME} where they are set.
std::string expanded(std::string text, HubEnvironment environment) {
  if (text == "~" || text.starts_with("~/")) text.replace(0, 1, text_of(environment, "HOME"));
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const bool brace = text[i] == '$' && i + 1 < text.size() && text[i + 1] == '{';
    const size_t begin = i + (brace ? 2 : 1);
    size_t end = begin;
    while (end < text.size() && (brace ? text[end] != '}' : is_word(text[end]))) ++end;
    const std::string name = text[i] == '$' && (!brace || end < text.size())
                                 ? text.substr(begin, end - begin)
                                 : std::string();
    if (name.empty() || environment(name.c_str()) == nullptr) {
      out += text[i++];
      continue;
    }
    out += text_of(environment, name);
    i = end + (brace ? 1 : 0);
  }
  return out;
}

}  // namespace

fs::path hub_home_folder(HubEnvironment environment) {
  if (const std::string home = text_of(environment, "HF_HOME"); !home.empty())
    return expanded(home, environment);
  std::string caches = text_of(environment, "XDG_CACHE_HOME");
  if (caches.empty()) caches = "~/.cache";
  return fs::path(expanded(caches, environment)) / "huggingface";
}

fs::path hub_cache_folder(HubEnvironment environment) {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
    if (const std::string cache = text_of(environment, name); !cache.empty())
      return expanded(cache, environment);
  return hub_home_folder(environment) / "hub";
}

Result<std::optional<HubName>> find_hub_alias(const fs::path& cache, std::string_view word) {
  const size_t at = word.find('@');
  const auto asked = parse_hub_name(concat("x/", word));
  if (!asked) return std::optional<HubName>();
  const std::string wanted = lower(word.substr(0, at));
  std::vector<std::string> found;
  std::error_code failure;
  fs::directory_iterator each(cache, failure);
  for (; !failure && each != fs::directory_iterator(); each.increment(failure)) {
    const auto name = repository_of_folder(each->path().filename().string());
    if (name && lower(name->substr(name->find('/') + 1)) == wanted) found.push_back(*name);
  }
  if (found.empty()) return std::optional<HubName>();
  if (found.size() == 1)
    return std::optional(HubName{.repository = found.front(), .revision = asked->revision});
  return make_error(ErrorCode::invalid_argument,
                    {.what = concat("model \"", word, "\""),
                     .expected = "a name that one model of the cache has",
                     .found = joined(std::move(found)),
                     .advice = "say it with its owner, ORG/NAME"});
}

Result<fs::path> find_hub_folder(const fs::path& cache, const HubName& name, SnapshotNeeds needs) {
  TRY(check_hub_revision(name));
  const fs::path home = cache / hub_folder_name(name.repository);
  std::error_code failure;
  if (!fs::is_directory(home, failure))
    return not_in_cache(name, name.repository, "a folder of that path or a model in the cache",
                        concat("neither (", home.string(), ")"));
  const std::string commit = TRY(commit_of(home, name));
  fs::path snapshot = home / "snapshots" / commit;
  if (!fs::is_directory(snapshot, failure))
    return not_in_cache(name, concat("commit ", commit, " of ", name.repository),
                        concat("a folder in ", snapshot.parent_path().string()), "none");
  TRY(check_whole(snapshot, name, needs));
  return snapshot;
}

}  // namespace nibble
