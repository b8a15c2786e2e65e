// Text: a UTF-8 string whose bytes each know their origin (template or user). Slices and
// concatenations keep the tags. Not a Unicode string: positions are bytes; see unicode.h.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "text/text_piece.h"

namespace nibble::jinja {

class Text {
 public:
  Text() = default;
  explicit Text(std::string bytes, Origin origin = Origin::from_template)
      : bytes_(std::move(bytes)), uniform_(origin) {}

  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }

  /// from_user if any byte is.
  Origin origin() const;
  Origin origin_at(size_t position) const;

  void append(const Text& other);
  void append(std::string_view bytes, Origin origin);
  Text slice(size_t begin, size_t end) const;

  /// Maximal runs of one origin, in order, none empty.
  std::vector<TextPiece> pieces() const;

  /// Marked by the `safe` and `escape` filters: `+` escapes what is joined to it, as Python's
  /// Markup does.
  bool markup = false;

 private:
  struct Run {
    size_t end;  // one past the last byte
    Origin origin;
  };
  void make_runs();
  size_t run_of(size_t position) const;

  std::string bytes_;
  Origin uniform_ = Origin::from_template;  // the tag of all bytes while runs_ is empty
  std::vector<Run> runs_;
};

}  // namespace nibble::jinja
