// Clusters: the characters that a person sees, and the columns that a terminal gives them.
#pragma once

#include <string_view>
#include <vector>

namespace nibble {

/// A grapheme cluster: a character with what combines with it.
struct Cluster {
  std::string_view text;
  int columns = 0;  // 0 to 2; 0 for control characters
};

/// The clusters of valid UTF-8, in order; all of the text.
std::vector<Cluster> clusters_of(std::string_view utf8);

}  // namespace nibble
