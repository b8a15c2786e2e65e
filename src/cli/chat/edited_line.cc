// Every change goes by whole clusters, so that no part of a character is ever left over.
#include "cli/chat/edited_line.h"

#include <algorithm>

#include "text/clusters.h"

namespace nibble {

namespace {

constexpr int kTabColumns = 4;

/// The places where clusters begin, and the end.
std::vector<size_t> borders_of(std::string_view text) {
  std::vector<size_t> made = {0};
  for (const Cluster& cluster : clusters_of(text))
    made.push_back(made.back() + cluster.text.size());
  return made;
}

bool in_word(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte >= 0x80 || (byte >= '0' && byte <= '9') || (byte | 0x20U) - 'a' < 26U;
}

}  // namespace

void EditedLine::set(std::string_view utf8) {
  text_ = utf8;
  at_ = text_.size();
}

void EditedLine::insert(std::string_view utf8) {
  text_.insert(at_, utf8);
  at_ += utf8.size();
  // The inserted text may have become one cluster with the text that follows it.
  const auto borders = borders_of(text_);
  at_ = *std::ranges::lower_bound(borders, at_);
}

size_t EditedLine::target(Toward toward, Reach reach) const {
  if (reach == Reach::line) return toward == Toward::left ? 0 : text_.size();
  const auto borders = borders_of(text_);
  auto place = static_cast<size_t>(std::ranges::lower_bound(borders, at_) - borders.begin());
  const bool left = toward == Toward::left;
  const auto can_move = [&] { return left ? place > 0 : place + 1 < borders.size(); };
  const auto next_in_word = [&] { return in_word(text_[borders[left ? place - 1 : place]]); };
  const auto step = [&] { place = left ? place - 1 : place + 1; };
  if (reach == Reach::character) {
    if (can_move()) step();
  } else {
    while (can_move() && !next_in_word()) step();
    while (can_move() && next_in_word()) step();
  }
  return borders[place];
}

void EditedLine::erase(Toward toward, Reach reach) {
  const size_t to = target(toward, reach);
  const size_t first = std::min(at_, to);
  const size_t count = std::max(at_, to) - first;
  if (reach != Reach::character && count > 0) erased_ = text_.substr(first, count);
  text_.erase(first, count);
  at_ = first;
}

EditedLine::Layout EditedLine::layout(std::string_view prompt, int columns) const {
  Layout made;
  made.rows.emplace_back(prompt);
  int used = static_cast<int>(prompt.size());
  size_t at = 0;
  const auto note_cursor = [&] {
    if (at != at_) return;
    made.cursor_row = made.rows.size() - 1;
    made.before_cursor = made.rows.back();
  };
  const auto new_row = [&] {
    made.rows.emplace_back();
    used = 0;
  };
  for (const Cluster& cluster : clusters_of(text_)) {
    const bool tab = cluster.text == "\t";
    const bool line_end = cluster.text == "\n" || cluster.text == "\r\n";
    const int wide = tab ? kTabColumns : cluster.columns;
    if (!line_end && used + wide > columns) new_row();
    note_cursor();
    if (line_end)
      new_row();
    else
      made.rows.back() += tab ? std::string(kTabColumns, ' ') : std::string(cluster.text);
    used += line_end ? 0 : wide;
    at += cluster.text.size();
  }
  if (used >= columns) new_row();  // the cursor has no place after the last column
  note_cursor();
  return made;
}

}  // namespace nibble
