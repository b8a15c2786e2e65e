// models--ORG--NAME/{refs/REVISION, snapshots/COMMIT/FILE -> ../../blobs/HASH}.
#include "cli/hub/hub_cache.h"

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

constexpr size_t kPartBytesMax = 96;  // of the owner and of the name, as on the hub
constexpr size_t kRevisionBytesMax = 255;
constexpr size_t kCommitDigits = 40;
constexpr uint64_t kRefBytesMax = 4096;

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

bool is_hub_part(std::string_view part) {
  return !part.empty() && part.size() <= kPartBytesMax && is_word(part.front()) &&
         is_word(part.back()) &&
         std::ranges::all_of(part, [](char c) { return is_word(c) || c == '.' || c == '-'; });
}

bool is_commit(std::string_view text) {
  return text.size() == kCommitDigits && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

/// A revision becomes a path below `refs`, so it must stay there.
bool is_revision(std::string_view text) {
  if (text.empty() || text.size() > kRevisionBytesMax) return false;
  if (std::ranges::any_of(text, [](unsigned char c) { return c <= ' ' || c == '\\' || c == 0x7F; }))
    return false;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('/', begin), text.size());
    const std::string_view part = text.substr(begin, end - begin);
    if (part.empty() || part.front() == '.' || part.find("..") != part.npos) return false;
    begin = end + 1;
  }
  return true;
}

std::string download_advice(const HubName& name) {
  const std::string revision =
      name.revision.empty() ? std::string() : concat(" --revision ", name.revision);
  return concat("`hf download ", name.repository, revision, "` gets it; nothing is fetched here");
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

Error bad_revision(const HubName& name) {
  return make_error(
      ErrorCode::invalid_argument,
      {.what = concat("revision of ", name.repository),
       .expected = concat("a branch, tag or commit of at most ", kRevisionBytesMax,
                          " bytes, without blanks, \"..\" or a part that starts with a dot"),
       .found = Json(name.revision.substr(0, kRevisionBytesMax)).dump()});
}

/// The commit of the revision: itself, or what the file refs/REVISION says.
Result<std::string> commit_of(const fs::path& home, const HubName& name) {
  const std::string revision = name.revision.empty() ? "main" : name.revision;
  if (is_commit(revision)) return revision;
  const fs::path refs = home / "refs";
  std::error_code failure;
  if (!fs::is_regular_file(refs / revision, failure))
    return not_in_cache(name, concat("revision ", revision, " of ", name.repository),
                        concat("one in ", refs.string()), known_revisions(refs));
  std::string commit = TRY(read_text_file(refs / revision, kRefBytesMax));
  while (!commit.empty() && std::isspace(static_cast<unsigned char>(commit.back())) != 0)
    commit.pop_back();
  if (is_commit(commit)) return commit;
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

std::optional<HubName> parse_hub_name(std::string_view word) {
  const size_t at = word.find('@');
  const std::string_view repository = word.substr(0, at);
  const size_t slash = repository.find('/');
  if (slash == repository.npos || !is_hub_part(repository.substr(0, slash)) ||
      !is_hub_part(repository.substr(slash + 1)) || repository.find("..") != repository.npos ||
      repository.find("--") != repository.npos || repository.ends_with(".git"))
    return std::nullopt;
  if (at == word.npos) return HubName{.repository = std::string(repository), .revision = ""};
  if (at + 1 == word.size()) return std::nullopt;
  return HubName{.repository = std::string(repository),
                 .revision = std::string(word.substr(at + 1))};
}

fs::path hub_cache_folder(HubEnvironment environment) {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
    if (const std::string cache = text_of(environment, name); !cache.empty())
      return expanded(cache, environment);
  if (const std::string home = text_of(environment, "HF_HOME"); !home.empty())
    return fs::path(expanded(home, environment)) / "hub";
  std::string caches = text_of(environment, "XDG_CACHE_HOME");
  if (caches.empty()) caches = "~/.cache";
  return fs::path(expanded(caches, environment)) / "huggingface" / "hub";
}

Result<fs::path> find_hub_folder(const fs::path& cache, const HubName& name, SnapshotNeeds needs) {
  if (!name.revision.empty() && !is_revision(name.revision)) return bad_revision(name);
  std::string folder = concat("models--", name.repository);
  folder.replace(folder.find('/'), 1, "--");
  const fs::path home = cache / folder;
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
