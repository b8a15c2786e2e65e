// Checkpoint: name -> view over the safetensors files of one Hugging Face folder. Headers are read
// and checked at open (limits, overlaps, sizes, index); tensor bytes are read when asked, by
// positioned reads: a truncated or changing file is an Error, not a signal. Files are mapped only
// for who asks, and computes from them where they lie (base/mapped_file.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "checkpoint/tensor_source.h"
#include "tensor/tensor.h"

namespace nibble {

/// The beginnings of a checkpoint's files, whose tensors are elsewhere.
struct CheckpointHeaders {
  struct File {
    std::string name;         // "model-00001-of-00002.safetensors"
    uint64_t bytes = 0;       // of the whole file
    std::string header = {};  // its JSON text, without the 8 bytes before it
  };
  std::string name;                  // for messages, in place of a folder
  std::string config;                // the text of config.json
  std::optional<std::string> index;  // of model.safetensors.index.json
  std::vector<File> files;           // those of the index, or all, sorted by name
};

class Checkpoint final : public TensorSource {
 public:
  /// Opens DIR/model.safetensors.index.json with its shards, or DIR/model.safetensors, or every
  /// *.safetensors of DIR. Refuses, by name: a missing shard, duplicate or overlapping tensors, an
  /// index that disagrees with the files, offsets outside the file, unknown element types.
  static Result<Checkpoint> open(const std::filesystem::path& folder);
  /// The same from headers alone, with the same checks. Its tensors have names, types, shapes and
  /// sizes, and read_bytes is unsupported.
  static Result<Checkpoint> from_headers(const CheckpointHeaders& headers);

  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint() override;

  /// From here on tensor bytes are read past the page cache. Errors: unsupported where the file
  /// system refuses; then nothing changes.
  Result<void> read_directly();
  /// From here on tensors are mapped() too. Errors: those of MappedFile::map; then nothing changes.
  Result<void> map_files();

  const std::filesystem::path& folder() const;
  /// File names inside folder(), in index order.
  std::span<const std::string> files() const;
  /// Sorted by name.
  std::span<const TensorEntry> entries() const;
  const TensorEntry* find(std::string_view name) const override;
  /// The entry, stating what is expected; a missing one is not_found, any other dtype or shape
  /// is corrupt.
  Result<const TensorEntry*> expect(std::string_view name, std::span<const DType> dtypes,
                                    const Shape& shape) const;
  Result<void> read_bytes(const TensorEntry& entry, int64_t begin,
                          std::span<std::byte> out) const override;
  /// It knows entries() alone; another may have the name of one of them and other bytes.
  MappedBytes mapped(const TensorEntry& entry) const override;
  std::shared_ptr<MappedFiles> mapping() const override;

  /// config.json, parsed. A missing or broken one fails open().
  const Json& config() const;

 private:
  struct State;
  explicit Checkpoint(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace nibble
