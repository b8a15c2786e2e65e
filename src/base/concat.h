// concat("a", 1, 2.5) -> std::string. The one way messages are put together (GCC 12 has no
// std::format). Not a formatter: no widths, no precision.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace nibble {

namespace detail {
/// A piece is what one argument of concat() adds. Every kind of text is one type here, so that
/// literals of different lengths do not each make code of their own in each file that has them.
class Piece {
 public:
  Piece(std::string_view text) : kind_(Kind::text), text_(text) {}
  Piece(char character) : kind_(Kind::character), character_(character) {}
  // Each of these is a template, so that nothing is converted to it.
  template <std::same_as<bool> T>
  Piece(T truth) : Piece(std::string_view(truth ? "true" : "false")) {}
  template <std::signed_integral T>
  Piece(T number) : kind_(Kind::integer), integer_(number) {}
  template <std::unsigned_integral T>
  requires(!std::same_as<T, bool>) Piece(T number) : kind_(Kind::natural), natural_(number) {}
  template <std::same_as<float> T>
  Piece(T number) : kind_(Kind::single), single_(number) {}
  template <std::same_as<double> T>
  Piece(T number) : kind_(Kind::real), real_(number) {}

  void append_to(std::string& out) const;

 private:
  enum class Kind : uint8_t { text, character, integer, natural, single, real };
  Kind kind_;
  union {
    std::string_view text_;
    char character_;
    int64_t integer_;
    uint64_t natural_;
    float single_;
    double real_;
  };
};

std::string join(std::initializer_list<Piece> pieces);
}  // namespace detail

/// Joins text, characters, booleans and numbers (shortest round-trip form) into one string.
template <typename... Pieces>
std::string concat(const Pieces&... pieces) {
  return detail::join({detail::Piece(pieces)...});
}

}  // namespace nibble
