// Appends pieces to a string; numbers in the shortest form that reads back as the same.
#include "base/concat.h"

#include <charconv>

namespace nibble::detail {
namespace {

template <typename T>
void append_number(std::string& out, T number) {
  char digits[64];
  const auto end = std::to_chars(digits, digits + sizeof digits, number);
  out.append(digits, end.ptr);
}

}  // namespace

void Piece::append_to(std::string& out) const {
  switch (kind_) {
    case Kind::text:
      out.append(text_);
      return;
    case Kind::character:
      out.push_back(character_);
      return;
    case Kind::integer:
      return append_number(out, integer_);
    case Kind::natural:
      return append_number(out, natural_);
    case Kind::single:
      return append_number(out, single_);
    case Kind::real:
      return append_number(out, real_);
  }
}

std::string join(std::initializer_list<Piece> pieces) {
  std::string out;
  for (const Piece& piece : pieces) piece.append_to(out);
  return out;
}

}  // namespace nibble::detail
