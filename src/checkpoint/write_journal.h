// WriteJournal: the part of a long write that is safely on disk, so that the work can go on after a
// kill. A file of checksummed lines in the output folder; the first binds it to the work, each
// other names a finished unit. Holds a lock for as long as it lives. Knows nothing of tensors.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace nibble {

inline constexpr std::string_view kJournalFile = ".nibble-journal";

class WriteJournal {
 public:
  struct Record {
    std::string unit;
    Json facts;  // for the run that continues: what the unit's report would say
  };

  /// Opens or makes the journal of `folder` and locks it. `work` is an object: program, source,
  /// settings; all must be equal to continue. Errors: invalid_argument when another process writes
  /// there, or for other work (names what differs); io.
  static Result<WriteJournal> open(const std::filesystem::path& folder, const Json& work);

  WriteJournal(WriteJournal&& other) noexcept;
  WriteJournal& operator=(WriteJournal&& other) noexcept;
  ~WriteJournal();

  /// True if an earlier run got as far as to bind the journal.
  bool resumed() const { return resumed_; }
  /// nullptr: not finished.
  const Json* find(std::string_view unit) const;
  /// The records are on disk when it returns. The data that the records speak of must be there
  /// before.
  Result<void> append(const std::vector<Record>& records);
  /// The work is complete: removes the file.
  Result<void> remove();

 private:
  WriteJournal(int descriptor, std::filesystem::path path)
      : descriptor_(descriptor), path_(std::move(path)) {}
  Result<void> read(const Json& work);
  Result<void> write(const std::string& text);

  int descriptor_ = -1;
  std::filesystem::path path_;
  bool resumed_ = false;
  uint64_t end_ = 0;  // of the sound lines
  std::map<std::string, Json, std::less<>> records_;
};

}  // namespace nibble
