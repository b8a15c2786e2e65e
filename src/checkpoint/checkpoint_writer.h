// CheckpointWriter: a new Hugging Face folder, written as a stream. The tensors are declared first,
// so headers are known, disk space is reserved before the work, and nothing is held in memory.
// config.json comes last: a folder without it is not a checkpoint, so nothing half-written looks
// whole. What is not finished is removed again or, with a journal, can be continued.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "tensor/tensor.h"

namespace nibble {

struct TensorPlan {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  /// Stem of a file for this and others like it, "model_mtp"; empty: the numbered shards.
  std::string file = {};
};

/// A finished weight file that becomes part of the output as it is.
struct LinkedFile {
  std::filesystem::path path;
  std::vector<std::string> tensors;
  int64_t bytes = 0;  // of them
};

struct CheckpointWriterOptions {
  /// Limit of one shard's tensors; a larger tensor gets a shard of its own.
  int64_t shard_bytes_max = int64_t{5} << 30;
  /// Hard-linked under their own names; copied where the file system cannot.
  std::vector<LinkedFile> linked = {};
  /// Folders that are read during the work; the output may be none of them.
  std::vector<std::filesystem::path> inputs = {};
  /// Called after each append with the bytes written so far and in all. One call at a time.
  std::function<void(int64_t done, int64_t total)> progress = {};
  /// Sees the bytes of each append, those of one tensor in their order; on the appending thread.
  std::function<void(std::string_view tensor, std::span<const std::byte> data)> appended = {};
  /// A description of the work as an object. With it the output has a journal (write_journal.h),
  /// and an unfinished output of the same work is continued. Null: there is no journal.
  Json work = {};
  /// Finished units reach the journal this often; a kill costs at most the work since then.
  double journal_seconds = 2.0;
};

class CheckpointWriter {
 public:
  /// Makes `folder` (it may exist if empty), lays the tensors out in shards in the given order,
  /// writes headers and reserves the space of all shards. Names must be unique (CHECK).
  /// Errors: invalid_argument (not empty, same as an input, another process or other work there),
  /// no_space, io.
  static Result<CheckpointWriter> create(const std::filesystem::path& folder,
                                         std::vector<TensorPlan> tensors,
                                         CheckpointWriterOptions options = {});

  CheckpointWriter(CheckpointWriter&&) noexcept;
  CheckpointWriter& operator=(CheckpointWriter&&) noexcept;
  /// Removes everything it made unless finish() succeeded or suspend() was called.
  ~CheckpointWriter();

  /// True if an earlier run's output is continued.
  bool resumed() const;
  /// The note of an earlier run about a finished unit; nullptr: the unit is still to be done.
  const Json* find_finished(std::string_view unit) const;
  /// Counts a tensor of a finished unit as written.
  void keep(std::string_view name);
  /// Notes a unit, all bytes of which were appended. From any thread. Does nothing without journal.
  Result<void> note_finished(std::string_view unit, Json facts);
  /// Puts on disk and notes what is finished, and leaves the output to be continued. False
  /// without a journal: the output will be removed.
  Result<bool> suspend();

  /// The next bytes of a declared tensor; tensors in any order, interleaved as you like. Several
  /// threads may append to different tensors. An unknown name or too many bytes is a CHECK.
  Result<void> append(std::string_view name, std::span<const std::byte> data);

  /// Copies, byte for byte, what belongs to a checkpoint and is no weight: tokenizer, templates,
  /// processor and generation configs, licence, model card. Not config.json, weights, indexes, or
  /// hf_quant_config.json, which describes the input's weights, nor what `without` names.
  Result<void> copy_other_files(const std::filesystem::path& from,
                                std::span<const std::string_view> without = {});

  /// One more file beside the weights: a report, hf_quant_config.json. Replaces a copied one.
  Result<void> add_file(std::string_view name, std::string_view text);

  const std::filesystem::path& folder() const;
  /// All files of the output so far, sorted, relative to folder(): weights and linked ones too.
  std::vector<std::filesystem::path> files() const;

  /// Writes the index, if there are several files of weights. Only for callers that need it before
  /// finish(), which does the same.
  Result<void> write_index();
  /// Flushes the shards, writes the index (only when there are several shards) and, last,
  /// config.json; then the journal is removed. Every declared byte must have been appended (else
  /// internal).
  Result<void> finish(const Json& config);

  /// Bytes of all files that hold tensors, headers included.
  int64_t file_bytes() const;

 private:
  struct State;
  explicit CheckpointWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace nibble
