// Stamps of files.
#include "server/file_watch.h"

#include <sys/stat.h>

#include <utility>

namespace nibble {

bool FileWatch::changed() {
  std::vector<Stamp> now;
  for (const auto& path : paths_) {
    struct stat facts = {};
    const bool there = ::stat(path.c_str(), &facts) == 0;
    now.push_back(there ? Stamp{facts.st_ino, static_cast<uint64_t>(facts.st_size),
                                static_cast<uint64_t>(facts.st_mtim.tv_sec),
                                static_cast<uint64_t>(facts.st_mtim.tv_nsec)}
                        : Stamp{});
  }
  return std::exchange(seen_, now) != now;
}

}  // namespace nibble
