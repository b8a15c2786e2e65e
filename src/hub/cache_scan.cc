// Links are followed into `blobs` alone: a link to elsewhere counts as a file of its own.
#include "hub/cache_scan.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <map>

#include "base/file.h"
#include "hub/hub_name.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kRefBytesMax = 4096;
constexpr std::string_view kIncomplete = ".incomplete";

struct Blob {
  uint64_t bytes = 0;
  int64_t used_seconds = 0;
  int64_t changed_seconds = 0;
};

Result<std::map<std::string, Blob>> read_blobs(const fs::path& folder, CachedModel& model) {
  std::map<std::string, Blob> blobs;
  std::error_code failure;
  fs::directory_iterator at(folder, failure);
  if (failure) return blobs;  // a model of which no file came yet
  for (; !failure && at != fs::directory_iterator(); at.increment(failure)) {
    struct stat facts = {};
    if (::stat(at->path().c_str(), &facts) != 0) continue;  // removed meanwhile
    const std::string name = at->path().filename().string();
    const auto bytes = static_cast<uint64_t>(facts.st_size);
    if (name.ends_with(kIncomplete)) {
      model.incomplete_bytes += bytes;
      continue;
    }
    blobs[name] = {
        .bytes = bytes, .used_seconds = facts.st_atime, .changed_seconds = facts.st_mtime};
    model.bytes += bytes;
    model.used_seconds = std::max<int64_t>(model.used_seconds, facts.st_atime);
  }
  if (failure) return system_error("list", folder);
  return blobs;
}

/// {commit: branches and tags}
std::map<std::string, std::vector<std::string>> read_refs(const fs::path& folder) {
  std::map<std::string, std::vector<std::string>> refs;
  std::error_code failure;
  fs::recursive_directory_iterator at(folder, failure);
  for (; !failure && at != fs::recursive_directory_iterator(); at.increment(failure)) {
    std::error_code gone;
    if (!at->is_regular_file(gone)) continue;
    const auto commit = read_text_file(at->path(), kRefBytesMax);
    if (commit.ok() && is_hub_commit(commit.value()))
      refs[commit.value()].push_back(at->path().lexically_relative(folder).string());
  }
  for (auto& [commit, names] : refs) std::ranges::sort(names);
  return refs;
}

Result<CachedRevision> read_snapshot(const fs::path& folder,
                                     const std::map<std::string, Blob>& blobs) {
  CachedRevision revision;
  revision.commit = folder.filename().string();
  std::error_code failure;
  fs::recursive_directory_iterator at(folder, failure);
  for (; !failure && at != fs::recursive_directory_iterator(); at.increment(failure)) {
    std::error_code gone;
    if (!at->is_regular_file(gone)) continue;
    ++revision.files;
    const std::string name =
        at->is_symlink(gone) ? fs::read_symlink(at->path(), gone).filename().string() : "";
    const auto blob = blobs.find(name);
    if (blob == blobs.end()) {
      revision.bytes += at->file_size(gone);
      continue;
    }
    if (!revision.blobs.insert(name).second) continue;
    revision.bytes += blob->second.bytes;
    revision.changed_seconds = std::max(revision.changed_seconds, blob->second.changed_seconds);
  }
  if (failure) return system_error("list", folder);
  return revision;
}

Result<CachedModel> read_model(std::string repository, const fs::path& home) {
  CachedModel model{.repository = std::move(repository), .home = home};
  const auto blobs = TRY(read_blobs(home / "blobs", model));
  auto refs = read_refs(home / "refs");
  std::error_code failure;
  fs::directory_iterator at(home / "snapshots", failure);
  for (; !failure && at != fs::directory_iterator(); at.increment(failure)) {
    if (!is_hub_commit(at->path().filename().string())) continue;
    CachedRevision revision = TRY(read_snapshot(at->path(), blobs));
    revision.refs = refs[revision.commit];
    model.revisions.push_back(std::move(revision));
  }
  std::ranges::sort(model.revisions, [](const CachedRevision& a, const CachedRevision& b) {
    return std::tie(b.changed_seconds, a.commit) < std::tie(a.changed_seconds, b.commit);
  });
  return model;
}

uint64_t bytes_of(const fs::path& path) {
  std::error_code failure;
  const uint64_t bytes = fs::file_size(path, failure);
  return failure ? 0 : bytes;
}

}  // namespace

Result<std::vector<CachedModel>> scan_cache(const fs::path& cache) {
  std::vector<CachedModel> models;
  std::error_code failure;
  if (!fs::exists(cache, failure)) return models;
  fs::directory_iterator at(cache, failure);
  for (; !failure && at != fs::directory_iterator(); at.increment(failure)) {
    std::error_code gone;
    auto repository = repository_of_folder(at->path().filename().string());
    if (!repository || !at->is_directory(gone)) continue;
    models.push_back(TRY(read_model(std::move(*repository), at->path())));
  }
  if (failure) {
    errno = failure.value();
    return system_error("list", cache);
  }
  std::ranges::sort(models, {}, &CachedModel::repository);
  return models;
}

RemovalPlan plan_removal(const fs::path& cache, const CachedModel& model, std::string_view commit) {
  RemovalPlan plan;
  const bool others = std::ranges::any_of(
      model.revisions, [&](const CachedRevision& one) { return one.commit != commit; });
  plan.whole_model = commit.empty() || !others;
  if (plan.whole_model) {
    plan.paths = {model.home, cache / ".locks" / model.home.filename()};
    plan.freed_bytes = model.bytes + model.incomplete_bytes;
    return plan;
  }
  const auto revision = std::ranges::find(model.revisions, commit, &CachedRevision::commit);
  CHECK(revision != model.revisions.end(), commit);
  for (const std::string& ref : revision->refs) plan.paths.push_back(model.home / "refs" / ref);
  plan.paths.push_back(model.home / "snapshots" / commit);
  plan.paths.push_back(model.home / "trees" / concat(commit, ".json"));
  for (const std::string& blob : revision->blobs) {
    const bool kept = std::ranges::any_of(model.revisions, [&](const CachedRevision& one) {
      return one.commit != commit && one.blobs.contains(blob);
    });
    const fs::path path = model.home / "blobs" / blob;
    (kept ? plan.kept_bytes : plan.freed_bytes) += bytes_of(path);
    if (!kept) plan.paths.push_back(path);
  }
  return plan;
}

Result<void> remove_planned(const RemovalPlan& plan) {
  for (const fs::path& path : plan.paths) {
    std::error_code failure;
    fs::remove_all(path, failure);
    if (!failure) continue;
    errno = failure.value();
    return system_error("remove", path);
  }
  return {};
}

}  // namespace nibble
