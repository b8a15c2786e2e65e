// The work of a pull: the files of a revision, which of them are wanted, and which are missing.
// It asks the hub and writes nothing; snapshot_download.h does the work.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "hub/blob_place.h"
#include "hub/hub_name.h"
#include "hub/hub_session.h"
#include "hub/hub_tree.h"

namespace nibble {

/// Files by patterns, as huggingface_hub filters: * and ? match '/' too; NAME/ is all below it.
struct FileFilter {
  std::vector<std::string> include;  // empty: all
  std::vector<std::string> exclude;
  bool wants(const std::string& path) const;
};

/// A commit and its files.
struct HubRevision {
  std::string repository;
  std::string revision;  // as asked for; never empty
  std::string commit;
  std::vector<HubFile> files;
};

/// Asks for the commit of `name`, and for its files unless the cache knows them already (a commit
/// never changes). Writes nothing. Errors: those of HubSession; corrupt for a list with paths that
/// may not be written.
Result<HubRevision> find_revision(const HubSession& session, const std::filesystem::path& cache,
                                  const HubName& name);

/// The work that one wanted file needs.
struct FileWork {
  enum class State : uint8_t {
    there,    // in the snapshot: nothing is to be done
    link,     // its bytes are in the cache, for another revision or another name
    missing,  // to be fetched, or the rest of it
  };
  HubFile file;
  State state = State::missing;
  BlobPlace place;          // unless `there`
  uint64_t kept_bytes = 0;  // of a beginning
};

struct DownloadPlan {
  HubRevision revision;
  std::vector<FileWork> files;  // the wanted ones
  uint64_t fetch_bytes() const;
};

/// Asks where each missing file lies, over `jobs` connections. Errors: those of find_blob; corrupt
/// where the list of files and the file itself disagree.
Result<DownloadPlan> plan_download(const HubSession& session, const std::filesystem::path& cache,
                                   HubRevision revision, const FileFilter& filter, int jobs);

/// The address of a file, by its commit, so that a moving branch cannot mix two.
std::string file_url(const HubSession& session, const HubRevision& revision,
                     const std::string& path);

/// The hash that a file must have: its name in the cache if that is one, else as it is listed.
std::string hash_of(const FileWork& work);

/// Calls `work` with 0 .. count-1 from `jobs` threads, each with a connection of its own; the first
/// error ends all.
Result<void> for_each_file(size_t count, int jobs,
                           const std::function<Result<void>(HubConnection&, size_t)>& work);

}  // namespace nibble
