// The order of writing: folders, blobs and links as they come whole; the ref first, as
// huggingface_hub has it, since a link is there only when its bytes are.
#include "hub/snapshot_download.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <string>
#include <vector>

#include "base/file.h"
#include "hub/blob_download.h"
#include "hub/cache_folder.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

/// Shared by the threads of download().
class Downloader {
 public:
  Downloader(const HubSession& session, const CacheFolder& folder, const DownloadPlan& plan,
             const DownloadWatch& watch)
      : session_(session),
        folder_(folder),
        plan_(plan),
        watch_(watch),
        total_(static_cast<int64_t>(plan.fetch_bytes())) {}

  Result<void> bring(const FileWork& work, int connections) {
    if (work.state == FileWork::State::there) return {};
    const std::string& etag = work.place.etag;
    const BlobLock lock = TRY(BlobLock::take(folder_.lock(etag), session_.settings().stop, [&] {
      if (session_.settings().tell)
        session_.settings().tell(concat(work.file.path, ": another program fetches it; waiting"));
    }));
    if (!fs::exists(folder_.blob(etag)))
      TRY(fetch(work, connections));
    else if (work.state == FileWork::State::missing)
      came(static_cast<int64_t>(work.place.bytes));
    return folder_.link(plan_.revision.commit, work.file.path, etag);
  }

 private:
  Result<void> fetch(const FileWork& work, int connections) {
    const std::string hash = hash_of(work);
    const fs::path target = folder_.beginning(work.place.etag);
    TRY(download_blob(session_, {.name = work.file.path,
                                 .url = file_url(session_, plan_.revision, work.file.path),
                                 .place = work.place,
                                 .kind = *hash_kind_of(hash),
                                 .hash = hash,
                                 .target = target,
                                 .connections = connections,
                                 .came = [this](int64_t bytes) { came(bytes); }}));
    const fs::path blob = folder_.blob(work.place.etag);
    if (::rename(target.c_str(), blob.c_str()) != 0) return system_error("rename", target);
    return {};
  }

  void came(int64_t bytes) {
    const int64_t done = here_ += bytes;
    if (watch_.progress)
      watch_.progress(static_cast<uint64_t>(std::clamp<int64_t>(done, 0, total_)),
                      static_cast<uint64_t>(total_));
  }

  const HubSession& session_;
  const CacheFolder& folder_;
  const DownloadPlan& plan_;
  const DownloadWatch& watch_;
  int64_t total_;
  std::atomic<int64_t> here_ = 0;
};

}  // namespace

Result<fs::path> download(const HubSession& session, const fs::path& cache,
                          const DownloadPlan& plan, int jobs, const DownloadWatch& watch) {
  const CacheFolder folder(cache, plan.revision.repository);
  TRY(folder.prepare());
  TRY(folder.write_ref(plan.revision.revision, plan.revision.commit));
  TRY(folder.write_tree(plan.revision.commit, tree_file_text(plan.revision.files)));
  std::vector<const FileWork*> small;
  std::vector<const FileWork*> large;
  for (const FileWork& work : plan.files)
    (work.place.bytes <= kSegmentBytes ? small : large).push_back(&work);
  Downloader downloader(session, folder, plan, watch);
  TRY(for_each_file(small.size(), jobs,
                    [&](HubConnection&, size_t i) { return downloader.bring(*small[i], 1); }));
  for (const FileWork* work : large) TRY(downloader.bring(*work, jobs));
  return folder.snapshot(plan.revision.commit);
}

}  // namespace nibble
