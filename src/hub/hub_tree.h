// The files of a commit: as pages of the hub's API list them, and as the cache keeps the list.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace nibble {

inline constexpr size_t kHubFilesMax = 100'000;

/// A file of a repository, as the tree of a commit lists it.
struct HubFile {
  std::string path;  // fine by check_hub_path
  uint64_t bytes = 0;
  std::string blob_id;     // git's SHA-1 of the file, or of its pointer if it is in LFS
  std::string lfs_sha256;  // empty: not in LFS
  uint64_t lfs_bytes = 0;
  std::string xet_hash;  // empty: none

  /// The size of its own bytes, wherever the hub keeps them.
  uint64_t content_bytes() const { return lfs_sha256.empty() ? bytes : lfs_bytes; }
};

/// The files of one page of GET /api/models/NAME/tree/COMMIT?recursive=true. Folders are left out.
Result<std::vector<HubFile>> parse_tree_page(std::string_view text);

/// Errors: corrupt for a path that is listed twice or is a file and a folder at once.
Result<void> check_tree(const std::vector<HubFile>& files);

/// The cache's copy of a tree, trees/COMMIT.json, as huggingface_hub 2 writes and reads it.
std::string tree_file_text(const std::vector<HubFile>& files);
Result<std::vector<HubFile>> parse_tree_file(std::string_view text);

}  // namespace nibble
