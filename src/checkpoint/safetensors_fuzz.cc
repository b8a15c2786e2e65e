// Fuzz entry: a whole file in memory. What parses must hold what the rest of the program relies on:
// ranges inside the file, adjacent, and as large as shape and type say.
#include <span>

#include "checkpoint/checkpoint_index.h"
#include "checkpoint/safetensors_header.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)nibble::parse_checkpoint_index(text);
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto length = nibble::safetensors_header_bytes(bytes, size, "fuzz");
  if (!length.ok()) return 0;
  const auto json = text.substr(nibble::kSafetensorsPrefixBytes, length.value());
  const auto header = nibble::parse_safetensors_header(json, size, "fuzz");
  if (!header.ok()) return 0;
  uint64_t at = nibble::kSafetensorsPrefixBytes + length.value();
  for (const auto& tensor : header.value().tensors) {
    CHECK(tensor.offset == at, tensor.name, " at ", tensor.offset, ", not ", at);
    CHECK(nibble::dtype_bytes(tensor.dtype, tensor.shape.count()) == tensor.bytes, tensor.name);
    at += static_cast<uint64_t>(tensor.bytes);
  }
  CHECK(at == size, "covers ", at, " of ", size);
  return 0;
}
