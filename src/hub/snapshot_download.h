// A planned download (download_plan.h) into the cache. What the user is told and asked is the
// verb's (cli/pull.cc).
#pragma once

#include <filesystem>
#include <functional>

#include "hub/download_plan.h"

namespace nibble {

struct DownloadWatch {
  /// Bytes of missing files that are here by now, of DownloadPlan's total; from any thread.
  std::function<void(uint64_t, uint64_t)> progress = {};
};

/// Writes the ref and the list of files, then fetches and links the files of the plan. Small files
/// come several at once, large ones one after the other over `jobs` connections. Returns the
/// snapshot's folder. Errors: those of download_blob and CacheFolder.
Result<std::filesystem::path> download(const HubSession& session,
                                       const std::filesystem::path& cache, const DownloadPlan& plan,
                                       int jobs, const DownloadWatch& watch);

}  // namespace nibble
