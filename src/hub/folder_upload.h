// A folder to a repository of the hub: which files go which way, the storage of large files, and
// one commit of all. What the user is shown and asked is the verb's (cli/push.cc).
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "hub/hub_session.h"
#include "hub/upload_replies.h"

namespace nibble {

struct UploadFile {
  std::string path;  // below the folder, and in the repository
  uint64_t bytes = 0;
  UploadWay way = UploadWay::regular;
  std::string sha256;  // of a file that goes into the storage, once it is known
};

/// The files below the folder, by name. Left out: hidden files and folders but .gitattributes.
/// Links are followed to files alone. Errors: io; invalid_argument for a name that the hub does not
/// take, and for an empty folder.
Result<std::vector<UploadFile>> list_upload(const std::filesystem::path& folder);

/// True if the hub has the repository. Errors: those of HubSession.
Result<bool> has_repository(const HubSession& session, const std::string& repository);

enum class Visibility : uint8_t { private_repository, public_repository };
/// Makes the repository. Errors: those of HubSession.
Result<void> make_repository(const HubSession& session, const std::string& repository,
                             Visibility visibility);

struct UploadTarget {
  std::string repository;
  std::string revision = "main";
  std::string message;  // of the commit
};

/// Asks the hub how it wants each file. Errors: those of HubSession.
Result<void> choose_ways(const HubSession& session, const std::filesystem::path& folder,
                         const UploadTarget& target, std::vector<UploadFile>& files);

/// Bytes that are done, of all; from any thread.
using UploadProgress = std::function<void(uint64_t, uint64_t)>;

/// Hashes the large files, sends those that the storage has not, and commits. A second run after a
/// failure sends only what is missing. Errors: those of HubSession; unsupported for more small
/// files than one commit takes.
Result<CommitReply> upload(const HubSession& session, const std::filesystem::path& folder,
                           const UploadTarget& target, std::vector<UploadFile>& files,
                           const UploadProgress& progress);

}  // namespace nibble
