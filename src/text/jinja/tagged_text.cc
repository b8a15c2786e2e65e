// Runs of tagged bytes. A string of one origin stores no runs.
#include "text/jinja/tagged_text.h"

#include <algorithm>

#include "base/check.h"

namespace nibble::jinja {

Origin Text::origin() const {
  if (runs_.empty()) return uniform_;
  const bool any =
      std::ranges::any_of(runs_, [](const Run& run) { return run.origin == Origin::from_user; });
  return any ? Origin::from_user : Origin::from_template;
}

size_t Text::run_of(size_t position) const {
  const auto run = std::ranges::upper_bound(runs_, position, {}, &Run::end);
  return static_cast<size_t>(run - runs_.begin());
}

Origin Text::origin_at(size_t position) const {
  if (runs_.empty()) return uniform_;
  CHECK(position < size(), "byte ", position, " of ", size());
  return runs_[run_of(position)].origin;
}

void Text::make_runs() {
  if (runs_.empty() && !bytes_.empty()) runs_.push_back({bytes_.size(), uniform_});
}

void Text::append(std::string_view bytes, Origin origin) {
  if (bytes.empty()) return;
  if (bytes_.empty()) {
    uniform_ = origin;
    runs_.clear();
  }
  if (!runs_.empty() || origin != uniform_) {
    make_runs();
    if (runs_.back().origin == origin) {
      runs_.back().end += bytes.size();
    } else {
      runs_.push_back({bytes_.size() + bytes.size(), origin});
    }
  }
  bytes_.append(bytes);
}

void Text::append(const Text& other) {
  if (other.runs_.empty()) return append(other.bytes_, other.uniform_);
  size_t begin = 0;
  for (const Run& run : other.runs_) {
    append(std::string_view(other.bytes_).substr(begin, run.end - begin), run.origin);
    begin = run.end;
  }
}

Text Text::slice(size_t begin, size_t end) const {
  CHECK(begin <= end && end <= size(), "slice ", begin, "..", end, " of ", size());
  const std::string_view all = bytes_;
  Text out;
  out.uniform_ = uniform_;
  if (runs_.empty()) {
    out.bytes_ = all.substr(begin, end - begin);
    return out;
  }
  for (size_t run = run_of(begin); begin < end; ++run) {
    const size_t stop = std::min(end, runs_[run].end);
    out.append(all.substr(begin, stop - begin), runs_[run].origin);
    begin = stop;
  }
  return out;
}

std::vector<TextPiece> Text::pieces() const {
  std::vector<TextPiece> out;
  if (bytes_.empty()) return out;
  if (runs_.empty()) return {{bytes_, uniform_}};
  size_t begin = 0;
  for (const Run& run : runs_) {
    out.push_back({bytes_.substr(begin, run.end - begin), run.origin});
    begin = run.end;
  }
  return out;
}

}  // namespace nibble::jinja
