// TensorSource: tensors by name, whose bytes are read when asked: the files of a checkpoint, or
// numbers that are made up.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "checkpoint/mapped_files.h"
#include "tensor/tensor.h"

namespace nibble {

struct TensorEntry {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  int file = 0;         // index into Checkpoint::files()
  uint64_t offset = 0;  // absolute, in that file
  int64_t bytes = 0;
};

class TensorSource {
 public:
  virtual ~TensorSource() = default;
  /// nullptr when absent.
  virtual const TensorEntry* find(std::string_view name) const = 0;
  /// Bytes [begin, begin + out.size()) of the tensor's data. Several threads may read at once.
  virtual Result<void> read_bytes(const TensorEntry& entry, int64_t begin,
                                  std::span<std::byte> out) const = 0;
  /// The bytes of a tensor that lies in mapping().
  virtual MappedBytes mapped(const TensorEntry& /*entry*/) const { return {}; }
  /// The files that mapped() points into, for who computes from them; null: nothing is mapped.
  virtual std::shared_ptr<MappedFiles> mapping() const { return nullptr; }
  /// The whole tensor.
  Result<Tensor> read(const TensorEntry& entry) const {
    Tensor tensor(entry.dtype, entry.shape);
    TRY(read_bytes(entry, 0, tensor.span()));
    return Result<Tensor>(std::move(tensor));
  }

 protected:
  TensorSource() = default;
  TensorSource(const TensorSource&) = default;
  TensorSource& operator=(const TensorSource&) = default;
  TensorSource(TensorSource&&) = default;
  TensorSource& operator=(TensorSource&&) = default;
};

}  // namespace nibble
