// The contents of the Hugging Face cache, and the bytes that removing a part of it frees. It reads
// folders and small files, never a weight.
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"

namespace nibble {

/// A snapshot of a model.
struct CachedRevision {
  std::string commit;
  std::vector<std::string> refs;  // branches and tags that point to it, sorted
  std::set<std::string> blobs;    // names of the blobs that its links lead to
  int64_t files = 0;
  uint64_t bytes = 0;           // of its files
  int64_t changed_seconds = 0;  // when its last blob came, since 1970
};

/// A model of the cache.
struct CachedModel {
  std::string repository;  // "org/name"
  std::filesystem::path home;
  std::vector<CachedRevision> revisions;  // by the time of their last change, the newest first
  uint64_t bytes = 0;                     // of its blobs, each once
  uint64_t incomplete_bytes = 0;          // of beginnings of files
  int64_t used_seconds = 0;               // when a blob was last read, since 1970; 0: never
};

/// The models of the cache, by name. A cache that does not exist has none; folders of other kinds
/// (datasets, spaces) and names that are no models are passed over. Errors: io.
Result<std::vector<CachedModel>> scan_cache(const std::filesystem::path& cache);

/// The paths to be removed.
struct RemovalPlan {
  std::vector<std::filesystem::path> paths;  // in this order
  uint64_t freed_bytes = 0;
  uint64_t kept_bytes = 0;  // of its files that another revision has too
  bool whole_model = false;
};

/// Without `commit` the whole model with its locks, else one revision: its snapshot, its refs, its
/// list of files, and the blobs that no other revision uses.
RemovalPlan plan_removal(const std::filesystem::path& cache, const CachedModel& model,
                         std::string_view commit);

/// Removes it. Errors: io; what was removed before stays so.
Result<void> remove_planned(const RemovalPlan& plan);

}  // namespace nibble
