// URIs in their parts, and references resolved against a base. Private to this module.
#pragma once

#include <string>
#include <string_view>

#include "base/concat.h"

namespace nibble {

/// The parts with the characters that tell them apart, but for the fragment.
struct Uri {
  std::string scheme;     // with ':'
  std::string authority;  // with "//"
  std::string path;
  std::string query;     // with '?'
  std::string fragment;  // without '#'

  std::string document() const { return concat(scheme, authority, path, query); }
};

/// The target of a reference in a document at `base`, as RFC 3986, 5.2, says. Any text is taken.
Uri resolved_uri(const Uri& base, std::string_view reference);

}  // namespace nibble
