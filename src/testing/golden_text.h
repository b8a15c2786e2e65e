// For tests: a text that is compared with a file of tests/golden.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/concat.h"
#include "base/file.h"
#include "testing/source_dir.h"

namespace nibble {

/// `name` is a path under tests/golden. Where they differ, the text is kept in a file beside the
/// temporary ones, which the failure names: it is to be taken over where a change is meant.
inline void expect_golden_text(const std::string& name, const std::string& found) {
  const auto file = std::filesystem::path(NIBBLE_SOURCE_DIR "/tests/golden") / name;
  constexpr uint64_t kBytesMax = uint64_t{1} << 24;
  if (std::filesystem::exists(file) && read_text_file(file, kBytesMax).value() == found) return;
  std::string flat = name;
  for (char& c : flat)
    if (c == '/') c = '-';
  const auto kept = std::filesystem::path(::testing::TempDir()) / flat;
  write_file_atomically(kept, found).value();
  FAIL() << file << " differs from " << kept;
}

}  // namespace nibble
