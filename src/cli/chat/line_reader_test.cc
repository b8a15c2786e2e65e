// Keys from bytes, the line that they edit, the rows it takes, and the lines that are kept.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "cli/chat/edited_line.h"
#include "cli/chat/line_history.h"
#include "cli/chat/typed_keys.h"
#include "testing/test_files.h"

namespace nibble {
namespace {

using Kind = Key::Kind;

std::vector<Key> keys_of(std::string bytes) {
  size_t at = 0;
  KeyReader reader([&](KeyReader::Wait wait) -> KeyReader::Input {
    if (at < bytes.size()) return {.kind = KeyReader::Input::Kind::byte, .byte = bytes[at++]};
    return {.kind = wait == KeyReader::Wait::moment ? KeyReader::Input::Kind::nothing
                                                    : KeyReader::Input::Kind::closed};
  });
  std::vector<Key> made;
  for (Key key = reader.next(); key.kind != Kind::closed; key = reader.next())
    made.push_back(std::move(key));
  return made;
}

std::string text_of(const std::string& bytes) {
  std::string made;
  for (const Key& key : keys_of(bytes)) made += key.kind == Kind::text ? key.text : "?";
  return made;
}

TEST(KeyReader, TakesEveryCharacter) {
  for (const char* text : {"aZ~ 9", "äßé", "日本語", "🙂👩\u200D👧", "e\u0301", "\U0010FFFF"})
    EXPECT_EQ(text_of(text), text);
  EXPECT_EQ(text_of("a\xFFz"), "a\uFFFDz");
  EXPECT_EQ(text_of("\xE6\x97z"), "\uFFFDz");  // a character that breaks off
  EXPECT_EQ(text_of("a\xC2\x9Bz"), "az");      // a control character of two bytes
}

TEST(KeyReader, KnowsKeysByTheirBytes) {
  const std::pair<const char*, Kind> kKeys[] = {{"\x1b[A", Kind::up},
                                                {"\x1bOB", Kind::down},
                                                {"\x1b[C", Kind::right},
                                                {"\x1b[1;5C", Kind::word_right},
                                                {"\x1b[1;5D", Kind::word_left},
                                                {"\x1b[5D", Kind::word_left},
                                                {"\x1b[H", Kind::begin},
                                                {"\x1bOF", Kind::end},
                                                {"\x1b[3~", Kind::erase_right},
                                                {"\x01", Kind::begin},
                                                {"\x7f", Kind::erase_left},
                                                {"\x17", Kind::erase_word_left},
                                                {"\r", Kind::enter},
                                                {"\x03", Kind::interrupt},
                                                {"\x04", Kind::control_d},
                                                {"\x1b\x7f", Kind::erase_word_left},
                                                {"\x1b[99;99X", Kind::unknown},
                                                {"\x1b", Kind::unknown}};
  for (const auto& [bytes, kind] : kKeys) {
    const auto keys = keys_of(bytes);
    ASSERT_EQ(keys.size(), 1U) << bytes + 1;
    EXPECT_EQ(keys[0].kind, kind) << bytes + 1;
  }
}

TEST(KeyReader, APasteIsOneText) {
  const auto keys = keys_of("\x1b[200~eins\r\nzwei ä\rdrei\t\x07\x1b[31m!\x1b[201~x");
  ASSERT_EQ(keys.size(), 2U);
  EXPECT_EQ(keys[0].text, "eins\nzwei ä\ndrei\t[31m!");
  EXPECT_EQ(keys[1].text, "x");
  EXPECT_EQ(keys_of("\x1b\r").at(0).text, "\n");  // Alt-Enter
}

using Toward = EditedLine::Toward;
using Reach = EditedLine::Reach;

TEST(EditedLine, MovesAndErasesByWholeCharacters) {
  EditedLine line;
  line.insert("ae\u0301日");
  line.move(Toward::left, Reach::character);
  line.erase(Toward::left, Reach::character);
  EXPECT_EQ(line.text(), "a日");
  line.insert("b");
  EXPECT_EQ(line.text(), "ab日");
  line.erase(Toward::right, Reach::character);
  EXPECT_EQ(line.text(), "ab");
  line.insert("\u0301");  // joins the b
  line.erase(Toward::left, Reach::character);
  EXPECT_EQ(line.text(), "a");
  line.erase(Toward::right, Reach::character);
  EXPECT_EQ(line.text(), "a");
}

TEST(EditedLine, KnowsWordsAndGivesThemBack) {
  EditedLine line;
  line.set("größer, als 日本");
  line.move(Toward::left, Reach::word);
  line.move(Toward::left, Reach::word);
  line.erase(Toward::left, Reach::word);
  EXPECT_EQ(line.text(), "als 日本");
  line.move(Toward::right, Reach::word);
  line.yank();
  EXPECT_EQ(line.text(), "alsgrößer,  日本");
  line.erase(Toward::right, Reach::line);
  EXPECT_EQ(line.text(), "alsgrößer, ");
  line.erase(Toward::left, Reach::line);
  EXPECT_EQ(line.text(), "");
}

TEST(EditedLine, LaysItsRowsOut) {
  EditedLine line;
  line.set("ab日本cd");
  auto made = line.layout("> ", 6);
  EXPECT_EQ(made.rows, (std::vector<std::string>{"> ab日", "本cd"}));
  EXPECT_EQ(made.cursor_row, 1U);
  EXPECT_EQ(made.before_cursor, "本cd");
  made = line.layout("> ", 7);  // no half of a character at the edge
  EXPECT_EQ(made.rows, (std::vector<std::string>{"> ab日", "本cd"}));
  line.move(Toward::left, Reach::word);
  EXPECT_EQ(line.layout("> ", 40).before_cursor, "> ");
  line.set("1234");
  made = line.layout("> ", 6);  // the cursor after a full row
  EXPECT_EQ(made.rows, (std::vector<std::string>{"> 1234", ""}));
  EXPECT_EQ(made.cursor_row, 1U);
  line.set("a\nb\tc");
  EXPECT_EQ(line.layout("> ", 40).rows, (std::vector<std::string>{"> a", "b    c"}));
}

TEST(LineHistory, KeepsLinesOfEveryKind) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "deep" / "history";
  LineHistory history;
  for (const char* line : {"a b", "a b", "", "größer \\ 日本", "two\nlines"}) history.add(line);
  ASSERT_TRUE(history.write(file).ok());
  EXPECT_EQ(LineHistory::read(file).lines(),
            (std::vector<std::string>{"a b", "größer \\ 日本", "two\nlines"}));
  EXPECT_EQ(read_text_file(file, 1000).value().substr(0, 20), "_HiStOrY_V2_\na\\040b\n");
  for (size_t i = 0; i < LineHistory::kLinesMax; ++i) history.add(concat("line ", i));
  EXPECT_EQ(history.lines().size(), LineHistory::kLinesMax);
  EXPECT_EQ(history.lines().front(), "line 0");
  EXPECT_TRUE(LineHistory::read(folder.path() / "none").lines().empty());
}

}  // namespace
}  // namespace nibble
