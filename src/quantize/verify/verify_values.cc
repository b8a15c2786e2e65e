// One tight loop per element width; the compiler vectorizes them.
#include "quantize/verify/verify_values.h"

#include <algorithm>
#include <span>
#include <utility>

namespace nibble {

namespace {

constexpr int64_t kChunkBytes = int64_t{1} << 20;

/// An element breaks the rule when all bits of `exponent` are set; it is zero when no bit but the
/// sign is. T is the element as an unsigned integer.
template <typename T>
void scan_floats(std::span<const T> elements, T exponent, int64_t base, ValueFacts& facts) {
  constexpr T kSign = static_cast<T>(T{1} << (8 * sizeof(T) - 1));
  T seen = 0;
  int64_t bad = 0;
  for (const T element : elements) {
    seen = static_cast<T>(seen | element);
    bad += (element & exponent) == exponent;
  }
  facts.all_zero &= static_cast<T>(seen & static_cast<T>(~kSign)) == 0;
  if (bad != 0 && facts.first_bad < 0) {
    const auto is_bad = [&](T element) { return (element & exponent) == exponent; };
    facts.first_bad = base + (std::ranges::find_if(elements, is_bad) - elements.begin());
  }
  facts.bad += bad;
}

void scan_block_scales(std::span<const uint8_t> codes, int64_t base, ValueFacts& facts) {
  uint8_t largest = 0;
  int64_t zeros = 0;
  for (const uint8_t code : codes) {
    largest = std::max(largest, code);
    zeros += code == 0;
  }
  facts.zero_codes += zeros;
  facts.largest_code = std::max(facts.largest_code, largest);
  facts.all_zero &= largest == 0;
  if (largest < 0x7F) return;
  for (size_t i = 0; i < codes.size(); ++i) {
    if (codes[i] < 0x7F) continue;
    if (facts.bad++ == 0) facts.first_bad = base + static_cast<int64_t>(i);
  }
}

void scan_codes(std::span<const uint8_t> bytes, ValueFacts& facts) {
  int64_t top = 0;
  for (const uint8_t byte : bytes) top += ((byte & 0x07) == 0x07) + ((byte & 0x70) == 0x70);
  facts.top_codes += top;
}

void scan_bytes(std::span<const uint8_t> bytes, uint8_t mask, ValueFacts& facts) {
  uint8_t seen = 0;
  for (const uint8_t byte : bytes) seen |= byte;
  facts.all_zero &= (seen & mask) == 0;
}

template <typename T>
std::span<const T> elements_of(std::span<const std::byte> chunk) {
  return {reinterpret_cast<const T*>(chunk.data()), chunk.size() / sizeof(T)};
}

/// `at` is the byte offset of the chunk in its tensor.
void scan_chunk(std::span<const std::byte> chunk, DType dtype, ValueRule rule, int64_t at,
                ValueFacts& facts) {
  const auto bytes = elements_of<uint8_t>(chunk);
  if (rule == ValueRule::block_scale) return scan_block_scales(bytes, at, facts);
  if (rule == ValueRule::nvfp4_codes) {
    scan_codes(bytes, facts);
    return scan_bytes(bytes, 0x77, facts);
  }
  if (rule == ValueRule::e4m3_values) return scan_floats<uint8_t>(bytes, 0x7F, at, facts);
  if (rule == ValueRule::bytes) return scan_bytes(bytes, 0xFF, facts);
  if (dtype == DType::bf16) {
    scan_floats<uint16_t>(elements_of<uint16_t>(chunk), 0x7F80, at / 2, facts);
  } else if (dtype == DType::f16) {
    scan_floats<uint16_t>(elements_of<uint16_t>(chunk), 0x7C00, at / 2, facts);
  } else if (dtype == DType::f32) {
    scan_floats<uint32_t>(elements_of<uint32_t>(chunk), 0x7F800000, at / 4, facts);
  } else {
    CHECK(dtype == DType::f64, dtype_info(dtype).name);
    scan_floats<uint64_t>(elements_of<uint64_t>(chunk), 0x7FF0000000000000, at / 8, facts);
  }
}

}  // namespace

Result<ValueFacts> scan_values(const Checkpoint& checkpoint, const TensorEntry& entry,
                               ValueRule rule, int64_t slices,
                               const std::function<void(std::span<const std::byte>)>& on_chunk) {
  ValueFacts facts;
  CHECK(slices > 0 && entry.bytes % slices == 0, entry.name, " in ", slices, " slices");
  const int64_t slice_bytes = entry.bytes / slices;
  Buffer buffer(std::min(kChunkBytes, slice_bytes));
  for (int64_t slice = 0; slice < slices; ++slice) {
    const bool zero_before = std::exchange(facts.all_zero, true);
    for (int64_t done = 0; done < slice_bytes;) {
      const int64_t at = slice * slice_bytes + done;
      const auto size = static_cast<size_t>(std::min(kChunkBytes, slice_bytes - done));
      const auto chunk = buffer.span().first(size);
      TRY(checkpoint.read_bytes(entry, at, chunk));
      scan_chunk(chunk, entry.dtype, rule, at, facts);
      done += static_cast<int64_t>(size);
      on_chunk(chunk);
    }
    if (facts.all_zero && slices > 1) facts.zero_slices.push_back(slice);
    facts.all_zero &= zero_before;
  }
  return facts;
}

}  // namespace nibble
