// Every file is asked for by HEAD, since the name of its blob is the ETag that the server gives.
#include "hub/download_plan.h"

#include <fnmatch.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <thread>

#include "base/file.h"
#include "hub/blob_hash.h"
#include "hub/cache_folder.h"
#include "hub/hub_replies.h"
#include "hub/url_origin.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

constexpr int kPagesMax = 1000;

bool matches(const std::string& pattern, const std::string& path) {
  const std::string whole = pattern.ends_with('/') ? pattern + "*" : pattern;
  return ::fnmatch(whole.c_str(), path.c_str(), FNM_NOESCAPE) == 0;
}

Result<std::vector<HubFile>> fetch_tree(const HubSession& session, HubConnection& connection,
                                        const HubRevision& revision) {
  std::vector<HubFile> files;
  std::string url = session.url(concat("api/models/", revision.repository, "/tree/",
                                       revision.commit, "?recursive=true&expand=false"));
  for (int page = 0; page < kPagesMax; ++page) {
    const HubRequest request{.url = url, .body_bytes_max = kHubReplyBytesMax};
    const HubReply reply = TRY(session.call(connection, request, Redirects::on_hub));
    std::vector<HubFile> more = TRY(parse_tree_page(reply.body));
    files.insert(files.end(), std::move_iterator(more.begin()), std::move_iterator(more.end()));
    if (files.size() > kHubFilesMax) break;
    const auto next = parse_next_link(reply.header("link"));
    if (!next) return files;
    url = TRY(resolved_url(url, *next));
    if (!session.is_hub(url))
      return make_error(ErrorCode::corrupt,
                        {.what = "next page of the list of files",
                         .expected = concat("an address of ", session.settings().endpoint),
                         .found = url});
  }
  return make_error(ErrorCode::corrupt, {.what = concat("list of files of ", revision.repository),
                                         .expected = concat("at most ", kHubFilesMax, " files"),
                                         .found = "more"});
}

Error disagreement(const HubFile& file, std::string_view expected, std::string_view found) {
  return make_error(ErrorCode::corrupt,
                    {.what = concat("the hub contradicts itself about ", file.path),
                     .expected = expected,
                     .found = found});
}

Result<void> check_place(const HubRevision& revision, const FileWork& work) {
  const HubFile& file = work.file;
  if (!work.place.commit.empty() && work.place.commit != revision.commit)
    return disagreement(file, concat("commit ", revision.commit), work.place.commit);
  if (work.place.bytes != file.content_bytes())
    return disagreement(file, concat(file.bytes, " bytes as listed"), concat(work.place.bytes));
  const auto kind = hash_kind_of(work.place.etag);
  if (kind == BlobHashKind::sha256 && !file.lfs_sha256.empty() &&
      file.lfs_sha256 != work.place.etag)
    return disagreement(file, concat("SHA-256 ", file.lfs_sha256, " as listed"), work.place.etag);
  if (!hash_kind_of(hash_of(work)))
    return disagreement(file, "a SHA-256 or a git SHA-1 as its ETag or in the list", "neither");
  return {};
}

uint64_t bytes_at(const fs::path& path) {
  std::error_code failure;
  const uint64_t bytes = fs::file_size(path, failure);
  return failure ? 0 : bytes;
}

}  // namespace

Result<void> for_each_file(size_t count, int jobs,
                           const std::function<Result<void>(HubConnection&, size_t)>& work) {
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::optional<Error> error;
  const auto run = [&] {
    HubConnection connection;
    for (size_t i = next++; i < count; i = next++) {
      const auto done = work(connection, i);
      if (done.ok()) continue;
      const std::lock_guard lock(mutex);
      if (!error) error = done.error();
      next = count;
    }
  };
  {
    std::vector<std::jthread> threads;
    for (size_t i = 1; i < std::min<size_t>(count, static_cast<size_t>(jobs)); ++i)
      threads.emplace_back(run);
    run();
  }
  if (error) return *error;
  return {};
}

std::string file_url(const HubSession& session, const HubRevision& revision,
                     const std::string& path) {
  return session.url(
      concat(revision.repository, "/resolve/", revision.commit, "/", url_path(path)));
}

std::string hash_of(const FileWork& work) {
  if (hash_kind_of(work.place.etag)) return work.place.etag;
  return work.file.lfs_sha256.empty() ? work.file.blob_id : work.file.lfs_sha256;
}

bool FileFilter::wants(const std::string& path) const {
  const auto any = [&](const std::vector<std::string>& patterns) {
    return std::ranges::any_of(patterns, [&](const auto& one) { return matches(one, path); });
  };
  return (include.empty() || any(include)) && !any(exclude);
}

uint64_t DownloadPlan::fetch_bytes() const {
  uint64_t bytes = 0;
  for (const FileWork& work : files)
    if (work.state == FileWork::State::missing) bytes += work.place.bytes;
  return bytes;
}

Result<HubRevision> find_revision(const HubSession& session, const fs::path& cache,
                                  const HubName& name) {
  TRY(check_hub_revision(name));
  HubRevision revision{.repository = name.repository,
                       .revision = name.revision.empty() ? "main" : name.revision};
  HubConnection connection;
  revision.commit = revision.revision;
  if (!is_hub_commit(revision.revision)) {
    const HubRequest request{.url = session.url(concat("api/models/", name.repository, "/revision/",
                                                       url_path(revision.revision))),
                             .body_bytes_max = kHubReplyBytesMax};
    const HubReply reply = TRY(session.call(connection, request, Redirects::on_hub));
    revision.commit = TRY(parse_revision_reply(reply.body));
  }
  const CacheFolder folder(cache, name.repository);
  const auto known = read_text_file(folder.tree(revision.commit), kHubReplyBytesMax);
  if (known.ok())
    if (auto files = parse_tree_file(known.value()); files.ok())
      revision.files = std::move(files).value();
  if (revision.files.empty()) revision.files = TRY(fetch_tree(session, connection, revision));
  TRY(check_tree(revision.files));
  return revision;
}

Result<DownloadPlan> plan_download(const HubSession& session, const fs::path& cache,
                                   HubRevision revision, const FileFilter& filter, int jobs) {
  DownloadPlan plan;
  for (const HubFile& file : revision.files)
    if (filter.wants(file.path)) plan.files.push_back({.file = file});
  plan.revision = std::move(revision);
  const CacheFolder folder(cache, plan.revision.repository);
  const auto ask = [&](HubConnection& connection, size_t i) -> Result<void> {
    FileWork& work = plan.files[i];
    if (folder.has(plan.revision.commit, work.file.path)) {
      work.state = FileWork::State::there;
      return {};
    }
    work.place =
        TRY(find_blob(session, connection, file_url(session, plan.revision, work.file.path)));
    TRY(check_place(plan.revision, work));
    const bool known = fs::exists(folder.blob(work.place.etag));
    work.state = known ? FileWork::State::link : FileWork::State::missing;
    work.kept_bytes = bytes_at(folder.blob(concat(work.place.etag, ".incomplete")));
    return {};
  };
  TRY(for_each_file(plan.files.size(), jobs, ask));
  return plan;
}

}  // namespace nibble
