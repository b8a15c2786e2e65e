// One file of the hub to one file here: where it lies, in ranges over several connections, on from
// where an earlier run stopped, and compared with its hash. Names and folders are cache_folder.h.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "hub/blob_hash.h"
#include "hub/blob_place.h"
#include "hub/hub_session.h"

namespace nibble {

struct BlobDownload {
  std::string name;  // for messages: the path in the repository
  std::string url;   // that find_blob takes, to ask again when `place` expires
  BlobPlace place;
  BlobHashKind kind = BlobHashKind::sha256;
  std::string hash;              // that the bytes must have
  std::filesystem::path target;  // a beginning of the file may be there
  int connections = 1;
  /// Told of bytes that are there anew, from any thread; negative if some are thrown away.
  std::function<void(int64_t)> came = {};
};

/// Bytes that one connection asks for at a time.
inline constexpr uint64_t kSegmentBytes = uint64_t{8} << 20;

/// Makes `target` the whole file, on the disk. Errors: those of HubSession; no_space; corrupt for
/// other bytes than the hash says, and then the file is gone. After any other error its beginning
/// stays.
Result<void> download_blob(const HubSession& session, const BlobDownload& download);

}  // namespace nibble
