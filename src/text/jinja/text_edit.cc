// Splitting, stripping and replacing of tagged text: byte searches, so tags survive by slicing.
#include <algorithm>

#include "text/jinja/methods.h"
#include "text/jinja/unicode.h"

namespace nibble::jinja {

namespace {

bool strips(std::string_view text, size_t position, const Text* characters) {
  const uint32_t c = code_point_at(text, position);
  if (characters == nullptr) return is_space(c);
  const std::string_view set = characters->bytes();
  for (size_t at = 0; at < set.size(); at = next_character(set, at)) {
    if (code_point_at(set, at) == c) return true;
  }
  return false;
}

size_t skip_left(std::string_view text, size_t begin, const Text* characters) {
  while (begin < text.size() && strips(text, begin, characters)) {
    begin = next_character(text, begin);
  }
  return begin;
}

size_t skip_right(std::string_view text, size_t begin, size_t end, const Text* characters) {
  while (end > begin) {
    const size_t previous = previous_character(text, end);
    if (!strips(text, previous, characters)) break;
    end = previous;
  }
  return end;
}

std::vector<Text> split_space_left(const Text& text, int64_t limit) {
  std::vector<Text> out;
  const std::string_view bytes = text.bytes();
  for (size_t begin = skip_left(bytes, 0, nullptr); begin < bytes.size();) {
    if (limit >= 0 && static_cast<int64_t>(out.size()) == limit) {
      out.push_back(text.slice(begin, bytes.size()));
      break;
    }
    size_t end = begin;
    while (end < bytes.size() && !is_space(code_point_at(bytes, end))) {
      end = next_character(bytes, end);
    }
    out.push_back(text.slice(begin, end));
    begin = skip_left(bytes, end, nullptr);
  }
  return out;
}

std::vector<Text> split_space_right(const Text& text, int64_t limit) {
  std::vector<Text> out;
  const std::string_view bytes = text.bytes();
  for (size_t end = skip_right(bytes, 0, bytes.size(), nullptr); end > 0;) {
    if (limit >= 0 && static_cast<int64_t>(out.size()) == limit) {
      out.push_back(text.slice(0, end));
      break;
    }
    size_t begin = end;
    while (begin > 0) {
      const size_t previous = previous_character(bytes, begin);
      if (is_space(code_point_at(bytes, previous))) break;
      begin = previous;
    }
    out.push_back(text.slice(begin, end));
    end = skip_right(bytes, 0, begin, nullptr);
  }
  std::ranges::reverse(out);
  return out;
}

std::vector<Text> split_by(const Text& text, const std::string& separator, int64_t limit) {
  std::vector<Text> out;
  size_t begin = 0;
  while (limit < 0 || static_cast<int64_t>(out.size()) < limit) {
    const size_t found = text.bytes().find(separator, begin);
    if (found == std::string::npos) break;
    out.push_back(text.slice(begin, found));
    begin = found + separator.size();
  }
  out.push_back(text.slice(begin, text.size()));
  return out;
}

std::vector<Text> rsplit_by(const Text& text, const std::string& separator, int64_t limit) {
  std::vector<Text> out;
  size_t end = text.size();
  while ((limit < 0 || static_cast<int64_t>(out.size()) < limit) && end >= separator.size()) {
    const size_t found = text.bytes().rfind(separator, end - separator.size());
    if (found == std::string::npos) break;
    out.push_back(text.slice(found + separator.size(), end));
    end = found;
  }
  out.push_back(text.slice(0, end));
  std::ranges::reverse(out);
  return out;
}

}  // namespace

Text strip_text(const Text& text, const Text* characters, Ends ends) {
  const std::string_view bytes = text.bytes();
  const size_t begin = ends == Ends::right ? 0 : skip_left(bytes, 0, characters);
  const size_t end =
      ends == Ends::left ? bytes.size() : skip_right(bytes, begin, bytes.size(), characters);
  Text out = text.slice(begin, end);
  out.markup = text.markup;
  return out;
}

std::vector<Text> split_text(const Text& text, const Text* separator, int64_t limit, Side from) {
  std::vector<Text> out;
  if (separator == nullptr) {
    out = from == Side::left ? split_space_left(text, limit) : split_space_right(text, limit);
  } else {
    out = from == Side::left ? split_by(text, separator->bytes(), limit)
                             : rsplit_by(text, separator->bytes(), limit);
  }
  for (Text& part : out) part.markup = text.markup;
  return out;
}

std::vector<Text> split_lines(const Text& text) {
  std::vector<Text> out;
  const std::string_view bytes = text.bytes();
  for (size_t begin = 0; begin < bytes.size();) {
    size_t end = begin;
    size_t next = bytes.size();
    for (; end < bytes.size(); end = next_character(bytes, end)) {
      const uint32_t c = code_point_at(bytes, end);
      const bool breaks = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 ||
                          c == 0x2028 || c == 0x2029;
      if (!breaks) continue;
      next = next_character(bytes, end);
      if (c == '\r' && next < bytes.size() && bytes[next] == '\n') ++next;
      break;
    }
    out.push_back(text.slice(begin, end));
    begin = end == bytes.size() ? end : next;
  }
  return out;
}

Result<Text> replace_text(Runtime& runtime, const Text& text, const Text& from, const Text& to,
                          int64_t limit) {
  Text out;
  const std::string_view bytes = text.bytes();
  size_t begin = 0;
  int64_t done = 0;
  const auto full = [&] { return out.size() > runtime.limits().output_bytes_max; };
  while ((limit < 0 || done < limit) && !full()) {
    size_t found = begin;
    if (!from.empty()) {
      found = bytes.find(from.bytes(), begin);
      if (found == std::string_view::npos) break;
    }
    out.append(text.slice(begin, found));
    out.append(to);
    ++done;
    begin = found + from.size();
    if (from.empty()) {  // between all characters, and at both ends
      if (begin >= bytes.size()) break;
      const size_t next = next_character(bytes, begin);
      out.append(text.slice(begin, next));
      begin = next;
    }
  }
  TRY(runtime.charge(done));
  out.append(text.slice(begin, text.size()));
  out.markup = text.markup;
  return out;
}

}  // namespace nibble::jinja
