// The header of one safetensors file: what is where. Pure parsing of text that may be hostile; the
// files of a folder are put together by checkpoint.cc.
// Format: 8 bytes little-endian N, N bytes of JSON that begin with '{', then the tensors' bytes
// without holes (https://huggingface.co/docs/safetensors#format).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "checkpoint/checkpoint.h"

namespace nibble {

inline constexpr uint64_t kSafetensorsPrefixBytes = 8;
/// The reference implementation stops at 100 MB; the largest real header is some 15 MB.
inline constexpr uint64_t kSafetensorsHeaderBytesMax = uint64_t{256} << 20;

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  // by offset; `file` is 0, offsets are absolute
  std::vector<std::pair<std::string, std::string>> metadata;  // __metadata__
};

/// N of the prefix, checked against the size of the file. Errors: corrupt.
Result<uint64_t> safetensors_header_bytes(std::span<const std::byte> prefix, uint64_t file_bytes,
                                          std::string_view source);

/// Parses the JSON text of a file of `file_bytes` in all. `source` names the file in errors.
/// Errors: corrupt (names the tensor), unsupported (element type or rank).
Result<SafetensorsHeader> parse_safetensors_header(std::string_view text, uint64_t file_bytes,
                                                   std::string_view source);

/// Does both of the above on an open file.
Result<SafetensorsHeader> read_safetensors_header(const File& file);

/// A tensor name for one-line messages: JSON quoting, cut when it is absurdly long.
std::string quoted_name(std::string_view name);

}  // namespace nibble
