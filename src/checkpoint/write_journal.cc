// Lines are "<16 hex digits of FNV-1a> <JSON>\n". What follows the last sound line was cut off by
// the end of the process or the power, and is written over.
#include "checkpoint/write_journal.h"

#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "base/file.h"
#include "base/hash.h"
#include "base/own_file.h"

namespace nibble {
namespace {

constexpr uint64_t kJournalBytesMax = uint64_t{1} << 30;
constexpr size_t kChecksumDigits = 16;

std::string checksum(std::string_view text) {
  uint64_t hash = kFnvBasis;
  for (const char c : text) hash = fnv1a(hash, static_cast<uint8_t>(c));
  char digits[kChecksumDigits + 1];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return digits;
}

std::string line_of(const Json& value) {
  const std::string json = value.dump();
  return concat(checksum(json), " ", json, "\n");
}

/// The JSON of the line at the start of `text`, or nothing if that is no whole line.
Result<Json> parse_line(std::string_view line) {
  const auto text = line.substr(std::min(line.size(), kChecksumDigits + 1));
  if (line.size() <= kChecksumDigits || line.substr(0, kChecksumDigits) != checksum(text))
    return Error{ErrorCode::corrupt, "a torn line"};
  return parse_json(text, kJournalFile);
}

Error not_this_work(const std::filesystem::path& path, std::string_view expected,
                    std::string_view found, std::string_view advice) {
  return make_error(ErrorCode::invalid_argument,
                    {.what = concat("cannot go on in ", path.parent_path().string()),
                     .expected = expected,
                     .found = found,
                     .advice = advice});
}

std::string short_text(const Json* value) {
  if (value == nullptr) return "nothing";
  return value->is_string() ? value->as_string().substr(0, 60) : value->dump().substr(0, 60);
}

}  // namespace

WriteJournal::WriteJournal(WriteJournal&& other) noexcept { *this = std::move(other); }

WriteJournal& WriteJournal::operator=(WriteJournal&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(path_, other.path_);
  std::swap(resumed_, other.resumed_);
  std::swap(end_, other.end_);
  std::swap(records_, other.records_);
  return *this;
}

WriteJournal::~WriteJournal() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<WriteJournal> WriteJournal::open(const std::filesystem::path& folder, const Json& work) {
  const auto path = folder / kJournalFile;
  const int descriptor = TRY(open_own_file(path));
  WriteJournal journal(descriptor, path);
  struct stat facts = {};
  if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0 || ::fstat(descriptor, &facts) != 0 ||
      facts.st_nlink == 0)
    return not_this_work(path, "a folder that nobody writes to", "another process at work",
                         "wait for it, or name a new folder");
  TRY(journal.read(work));
  if (::ftruncate(descriptor, static_cast<off_t>(journal.end_)) != 0)
    return system_error("shorten", path);
  if (!journal.resumed_) TRY(journal.write(line_of(work)));
  return journal;
}

Result<void> WriteJournal::read(const Json& work) {
  const std::string text = TRY(read_text_file(path_, kJournalBytesMax));
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) return {};
    const auto line = parse_line(std::string_view(text).substr(begin, end - begin));
    if (!line.ok()) return {};
    begin = end_ = end + 1;
    if (resumed_) {
      const Json* unit = line.value().find("unit");
      const Json* facts = line.value().find("facts");
      if (unit != nullptr && unit->is_string() && facts != nullptr)
        records_.insert_or_assign(unit->as_string(), *facts);
      continue;
    }
    resumed_ = true;
    for (const auto& [key, value] : work.as_object()) {
      const Json* before = line.value().find(key);
      if (before != nullptr && *before == value) continue;
      return not_this_work(path_, concat("the ", key, " it was begun with, ", short_text(before)),
                           short_text(&value),
                           "give back what changed, or remove the folder to begin again");
    }
  }
  return {};
}

Result<void> WriteJournal::write(const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t put = ::pwrite(descriptor_, text.data() + done, text.size() - done,
                                 static_cast<off_t>(end_ + done));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return system_error("write", path_);
    done += static_cast<size_t>(put);
  }
  end_ += text.size();
  if (::fdatasync(descriptor_) != 0) return system_error("flush", path_);
  return {};
}

const Json* WriteJournal::find(std::string_view unit) const {
  const auto found = records_.find(unit);
  return found == records_.end() ? nullptr : &found->second;
}

Result<void> WriteJournal::append(const std::vector<Record>& records) {
  std::string text;
  for (const Record& record : records) {
    Json line;
    line.set("unit", record.unit);
    line.set("facts", record.facts);
    text += line_of(line);
  }
  return write(text);
}

Result<void> WriteJournal::remove() {
  if (::unlink(path_.c_str()) != 0) return system_error("remove", path_);
  return {};
}

}  // namespace nibble
