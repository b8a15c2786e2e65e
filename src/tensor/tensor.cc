// Shape arithmetic and aligned memory.
#include "tensor/tensor.h"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace nibble {

Shape::Shape(std::span<const int64_t> sizes) : rank_(static_cast<int>(sizes.size())) {
  CHECK(sizes.size() <= kRankMax, "rank ", sizes.size());
  std::ranges::copy(sizes, sizes_.begin());
}

int64_t Shape::count() const {
  int64_t product = 1;
  for (const int64_t size : sizes()) product *= size;
  return product;
}

bool Shape::operator==(const Shape& other) const {
  return std::ranges::equal(sizes(), other.sizes());
}

std::string Shape::text() const {
  std::string out = "[";
  for (int axis = 0; axis < rank_; ++axis) out += concat(axis > 0 ? ", " : "", (*this)[axis]);
  return out + "]";
}

Buffer::Buffer(int64_t bytes) : bytes_(bytes) {
  CHECK(bytes >= 0, "buffer of ", bytes, " bytes");
  if (bytes == 0) return;
  const size_t rounded = (static_cast<size_t>(bytes) + 63) / 64 * 64;
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(64, rounded));
  if (memory == nullptr) throw std::bad_alloc();
  memory_.reset(memory);
}

void Buffer::Free::operator()(std::byte* memory) const { std::free(memory); }

}  // namespace nibble
