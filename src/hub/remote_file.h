// Files of a revision read into memory, whole or in part, for questions that need no download.
// Nothing is written; the cache is left alone.
#pragma once

#include <cstdint>
#include <string>

#include "hub/download_plan.h"

namespace nibble {

/// A small file whole. Errors: those of HubSession::call; corrupt for one that the list says is
/// larger than `bytes_max`.
Result<std::string> read_remote_file(const HubSession& session, HubConnection& connection,
                                     const HubRevision& revision, const HubFile& file,
                                     uint64_t bytes_max);

struct FileRange {
  uint64_t begin = 0;
  uint64_t bytes = 0;  // at least 1, within the file
};

/// A part of a file by a Range header: no other byte is asked for. Errors: those of
/// HubSession::call; unsupported for a server that sends the whole file; corrupt for another range
/// or another size of the file than the list says.
Result<std::string> read_remote_range(const HubSession& session, HubConnection& connection,
                                      const HubRevision& revision, const HubFile& file,
                                      FileRange range);

}  // namespace nibble
