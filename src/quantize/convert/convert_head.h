// convert --head: the same checkpoint with its head stored another way. The head is made anew from
// the source; every other weight file is hard-linked, so the rest is the same by construction.
#pragma once

#include <filesystem>
#include <string_view>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "quantize/block_bytes.h"

namespace nibble {

enum class HeadFormat : uint8_t { bf16, fp8_block, nvfp4 };
/// "bf16", "fp8-block", "nvfp4". Errors: invalid_argument.
Result<HeadFormat> parse_head_format(std::string_view name);

struct HeadReport {
  int64_t linked_files = 0;
  int64_t bytes_before = 0;  // of the head
  int64_t bytes_after = 0;
  double relative_error = 0;  // of the new head; 0 for bf16
};

/// `source` is the unquantized checkpoint that `checkpoint` was made from. bf16 means the source's
/// own type. Weights only for nvfp4; as in recipes otherwise. Errors: unsupported (a tied head, a
/// head that shares its file, a format the dialect cannot say, bf16 where nothing else is
/// quantized), corrupt (the source's head does not fit or is broken), otherwise as quantize().
/// `block_bytes` of the source are rounded at once.
Result<HeadReport> convert_head(const Checkpoint& checkpoint, const Checkpoint& source,
                                HeadFormat format, const std::filesystem::path& output,
                                int64_t block_bytes = kBlockBytes);

}  // namespace nibble
