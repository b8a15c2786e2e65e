// Texts, numbers and lists as bytes, for messages between this process and those that compile
// structures for it. Both are one program on one machine, so numbers are in the machine's form. A
// reader checks every length, since the other side has handled what strangers wrote.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace nibble {

class ByteWriter {
 public:
  template <typename T>
  void number(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(std::string_view value) {
    number(uint64_t{value.size()});
    bytes_.append(value);
  }
  template <typename T>
  void numbers(const std::vector<T>& values) {
    static_assert(std::is_trivially_copyable_v<T>);
    number(uint64_t{values.size()});
    bytes_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  }
  void texts(const std::vector<std::string>& values) {
    number(uint64_t{values.size()});
    for (const std::string& value : values) text(value);
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// After the first value that is not there whole, sound() is false and all values are empty.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : left_(bytes) {}

  template <typename T>
  T number() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value = {};
    if (const std::string_view bytes = take(sizeof value); !bytes.empty())
      std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  std::string text() { return std::string(take(size_of_list(1))); }
  template <typename T>
  std::vector<T> numbers() {
    const size_t size = size_of_list(sizeof(T));
    std::vector<T> values(size);
    if (size > 0) std::memcpy(values.data(), take(size * sizeof(T)).data(), size * sizeof(T));
    return values;
  }
  std::vector<std::string> texts() {
    std::vector<std::string> values(size_of_list(sizeof(uint64_t)));
    for (std::string& value : values) value = text();
    return values;
  }
  /// The number of values that follow, each of so many bytes or more.
  size_t size_of_list(size_t least_bytes) {
    const auto size = number<uint64_t>();
    if (size <= left_.size() / least_bytes) return size;
    fail();
    return 0;
  }

  bool sound() const { return sound_; }
  bool at_end() const { return sound_ && left_.empty(); }

 private:
  std::string_view take(size_t size) {
    if (size > left_.size()) fail();
    if (!sound_) return {};
    const std::string_view bytes = left_.substr(0, size);
    left_.remove_prefix(size);
    return bytes;
  }
  void fail() {
    sound_ = false;
    left_ = {};
  }

  std::string_view left_;
  bool sound_ = true;
};

}  // namespace nibble
