// Fuzz entry: the journal that an earlier run left in an output folder. It is continued, begun
// again or refused in one line; what is appended to it then is there when it is opened again.
#include "checkpoint/write_journal.h"
#include "testing/test_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nibble;
  static const TemporaryFolder folder;
  static const Json work = json_object({{"program", Json("fuzz")}, {"source", Json("model")}});
  write_test_file(folder / kJournalFile, {reinterpret_cast<const char*>(data), size});
  {
    auto journal = WriteJournal::open(folder.path(), work);
    if (!journal.ok()) {
      CHECK(journal.error().message.find('\n') == std::string::npos, journal.error().message);
      return 0;
    }
    CHECK(journal.value().append({{.unit = "after", .facts = Json(7)}}).ok(), "append");
  }
  const auto again = WriteJournal::open(folder.path(), work);
  CHECK(again.ok() && again.value().resumed() && again.value().find("after") != nullptr,
        "what was appended");
  return 0;
}
