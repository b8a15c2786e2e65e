// libedit's format: a first line that names it, then a line an entry, where white space,
// backslashes and what is not ASCII are octal numbers of three digits after a backslash.
#include "cli/chat/line_history.h"

#include <sys/stat.h>

#include "base/file.h"
#include "text/tokenizer/tokenizer_utf8.h"

namespace nibble {

namespace {

constexpr std::string_view kFirstLine = "_HiStOrY_V2_";
constexpr uint64_t kFileBytesMax = uint64_t{64} << 20;

std::string encoded(std::string_view line) {
  std::string made;
  for (const char c : line) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte > ' ' && byte < 127 && c != '\\') {
      made += c;
      continue;
    }
    made += '\\';
    for (const unsigned shift : {6U, 3U, 0U})
      made += static_cast<char>('0' + (static_cast<unsigned>(byte) >> shift & 7U));
  }
  return made;
}

bool is_octal(char c) { return c >= '0' && c <= '7'; }

std::string decoded(std::string_view text) {
  std::string bytes;
  for (size_t i = 0; i < text.size(); ++i) {
    const std::string_view rest = text.substr(i + 1, 3);
    if (text[i] == '\\' && rest.size() == 3 && is_octal(rest[0]) && is_octal(rest[1]) &&
        is_octal(rest[2])) {
      bytes += static_cast<char>((rest[0] - '0') * 64 + (rest[1] - '0') * 8 + (rest[2] - '0'));
      i += 3;
    } else if (text.substr(i).starts_with("\\\\")) {
      bytes += text[i++];
    } else {
      bytes += text[i];
    }
  }
  std::string made;
  append_lossy_utf8(made, bytes, Utf8End::replace);
  return made;
}

}  // namespace

LineHistory LineHistory::read(const std::filesystem::path& file) {
  LineHistory made;
  const auto text = read_text_file(file, kFileBytesMax);
  if (!text.ok() || !text.value().starts_with(kFirstLine)) return made;
  std::string_view rest = text.value();
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (line != kFirstLine) made.add(decoded(line));
  }
  return made;
}

Result<void> LineHistory::write(const std::filesystem::path& file) const {
  std::error_code ignored;
  std::filesystem::create_directories(file.parent_path(), ignored);
  std::string text = concat(kFirstLine, "\n");
  for (const std::string& line : lines_) text += concat(encoded(line), "\n");
  const mode_t before = ::umask(0077);  // what was typed is nobody else's business
  const auto written = write_file_atomically(file, text);
  ::umask(before);
  return written;
}

void LineHistory::add(std::string_view line) {
  if (line.empty() || (!lines_.empty() && lines_.back() == line)) return;
  lines_.emplace_back(line);
  if (lines_.size() > kLinesMax) lines_.erase(lines_.begin());
}

}  // namespace nibble
