// For tests: a folder that disappears again, and safetensors files put together by hand, as wrong
// as a test wants them.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

#include "base/check.h"

namespace nibble {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "nibble-test-XXXXXX").string();
    CHECK(::mkdtemp(pattern.data()) != nullptr, pattern);
    path_ = pattern;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline void write_test_file(const std::filesystem::path& path, std::string_view data) {
  std::ofstream out(path, std::ios::binary);
  out.write(data.data(), static_cast<std::streamsize>(data.size()));
  CHECK(out.good(), path.string());
}

inline std::string read_test_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// Length prefix, header text as given, then `data_bytes` bytes 0, 1, 2, ...
inline std::string safetensors_bytes(std::string_view header, size_t data_bytes) {
  std::string out;
  for (size_t i = 0; i < 8; ++i) out.push_back(static_cast<char>(header.size() >> (8 * i) & 255));
  out += header;
  for (size_t i = 0; i < data_bytes; ++i) out.push_back(static_cast<char>(i & 255));
  return out;
}

}  // namespace nibble
