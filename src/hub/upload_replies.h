// Readers of what the hub says during an upload, each with limits. Nothing here asks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace nibble {

/// How the hub wants a file.
enum class UploadWay : uint8_t {
  regular,  // in the commit itself
  lfs,      // in the storage of large files, before the commit
  ignored,  // not at all: a .gitignore of the repository says so
};

struct UploadChoice {
  std::string path;
  UploadWay way = UploadWay::regular;
};
/// The reply to POST /api/models/NAME/preupload/REV.
Result<std::vector<UploadChoice>> parse_preupload_reply(std::string_view text);

/// Where an object of the storage goes.
struct LfsUpload {
  std::string sha256;
  std::string url;                 // empty: the storage has it
  std::vector<std::string> parts;  // addresses of its parts in their order; then `url` ends it
  uint64_t part_bytes = 0;         // of each but the last
  std::string verify_url;          // empty: the hub wants no confirmation
};
/// The reply to POST /NAME.git/info/lfs/objects/batch. Errors: corrupt; io with the hub's words for
/// an object that it refuses.
Result<std::vector<LfsUpload>> parse_lfs_batch_reply(std::string_view text);

struct CommitReply {
  std::string commit;
  std::string url;  // of its page
};
/// The reply to POST /api/models/NAME/commit/REV.
Result<CommitReply> parse_commit_reply(std::string_view text);

}  // namespace nibble
