// MappedFiles: the weight files of a checkpoint, mapped into memory. Whoever computes from their
// bytes holds them.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"

namespace nibble {

/// Bytes of a tensor where its file is mapped.
struct MappedBytes {
  const MappedFile* file = nullptr;  // null: the tensor is not mapped
  std::span<const std::byte> bytes;

  bool present() const { return file != nullptr; }
  const std::byte* data() const { return bytes.data(); }
  MappedBytes part(int64_t begin, int64_t count) const {
    return {file, bytes.subspan(static_cast<size_t>(begin), static_cast<size_t>(count))};
  }
  Result<void> fetch() const { return file->fetch(bytes); }
};

class MappedFiles {
 public:
  explicit MappedFiles(std::vector<MappedFile> files) : files_(std::move(files)) {}
  const MappedFile& file(int index) const { return files_[static_cast<size_t>(index)]; }

  /// These are MappedFile's, of all files.
  void outlive() {
    for (MappedFile& file : files_) file.outlive();
  }
  void read_at_random() {
    for (MappedFile& file : files_) file.read_at_random();
  }
  Result<void> intact() const {
    for (const MappedFile& file : files_) TRY(file.intact());
    return {};
  }

 private:
  std::vector<MappedFile> files_;
};

}  // namespace nibble
