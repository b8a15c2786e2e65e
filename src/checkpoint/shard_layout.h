// The place of each declared tensor: shards, headers and offsets, as pure arithmetic. Within a
// shard the order is widest element first, then name, so that every tensor is aligned to its
// element.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_writer.h"

namespace nibble {

struct ShardLayout {
  std::string file;          // "model.safetensors" or "model-00001-of-00003.safetensors"
  std::string head;          // length prefix and padded JSON: the first bytes of the file
  int64_t data_bytes = 0;    // after the head
  std::vector<int> tensors;  // indices into the plan, in file order
};

struct TensorPlace {
  int shard = 0;
  uint64_t offset = 0;  // absolute, in its shard
  int64_t bytes = 0;
};

struct CheckpointLayout {
  std::vector<ShardLayout> shards;
  std::vector<TensorPlace> places;  // one per plan entry
};

CheckpointLayout lay_out_shards(std::span<const TensorPlan> plan, int64_t shard_bytes_max);

/// The text of model.safetensors.index.json.
std::string index_text(std::span<const TensorPlan> plan, const CheckpointLayout& layout,
                       std::span<const LinkedFile> linked);

}  // namespace nibble
