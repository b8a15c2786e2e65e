// Fuzz entry: bytes as a terminal sends them, and as a file of lines that were typed before. The
// line stays UTF-8 without control characters other than line breaks and tabs, it is laid out in
// rows that are no wider than the screen, and history gives back what was kept.
#include "base/check.h"
#include "cli/chat/edited_line.h"
#include "cli/chat/line_history.h"
#include "cli/chat/typed_keys.h"
#include "testing/test_files.h"
#include "text/clusters.h"
#include "text/tokenizer/tokenizer_utf8.h"

namespace {

using namespace nibble;

constexpr int kColumns = 9;

void check_line(const EditedLine& line) {
  CHECK(valid_utf8_prefix(line.text()) == line.text().size(), line.text());
  for (const char c : line.text())
    CHECK(static_cast<unsigned char>(c) >= ' ' || c == '\n' || c == '\t', static_cast<int>(c));
  const EditedLine::Layout made = line.layout("> ", kColumns);
  CHECK(made.cursor_row < made.rows.size(), made.cursor_row);
  CHECK(made.rows[made.cursor_row].starts_with(made.before_cursor), made.before_cursor);
  for (const std::string& row : made.rows) {
    int columns = 0;
    for (const Cluster& cluster : clusters_of(row)) columns += cluster.columns;
    CHECK(columns <= kColumns, row);
  }
}

void type(std::string_view bytes) {
  size_t at = 0;
  KeyReader keys([&](KeyReader::Wait) -> KeyReader::Input {
    if (at == bytes.size()) return {.kind = KeyReader::Input::Kind::closed};
    return {.kind = KeyReader::Input::Kind::byte, .byte = bytes[at++]};
  });
  EditedLine line;
  LineHistory history;
  for (Key key = keys.next(); key.kind != Key::Kind::closed; key = keys.next()) {
    const auto kind = static_cast<unsigned>(key.kind);
    const auto toward = kind % 2 == 0 ? EditedLine::Toward::left : EditedLine::Toward::right;
    const auto reach = static_cast<EditedLine::Reach>(kind / 2 % 3);
    if (key.kind == Key::Kind::text)
      line.insert(key.text);
    else if (key.kind == Key::Kind::enter)
      history.add(line.text());
    else if (key.kind == Key::Kind::yank)
      line.yank();
    else if (kind % 5 == 0)
      line.erase(toward, reach);
    else
      line.move(toward, reach);
    check_line(line);
  }
  static const TemporaryFolder folder;
  CHECK(history.write(folder / "history").ok(), "written");
  CHECK(LineHistory::read(folder / "history").lines() == history.lines(), "kept");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kBytesMax = 2000;
  const std::string_view bytes(reinterpret_cast<const char*>(data), std::min(size, kBytesMax));
  type(bytes);
  static const TemporaryFolder folder;
  write_test_file(folder / "history", std::string("_HiStOrY_V2_\n") + std::string(bytes));
  const LineHistory history = LineHistory::read(folder / "history");
  for (const std::string& line : history.lines())
    CHECK(valid_utf8_prefix(line) == line.size() && !line.empty(), line);
  return 0;
}
