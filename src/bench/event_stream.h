// EventStream: the data of server-sent events out of the bytes of an answer, in whatever pieces
// they come. It knows the framing alone, not what the data means.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace nibble {

class EventStream {
 public:
  static constexpr size_t kEventBytesMax = size_t{4} << 20;

  /// Gets the data of one event; an error stops the reading.
  using Take = std::function<Result<void>(std::string_view data)>;
  /// Calls `take` for each event that `bytes` complete. Comments and other fields are passed over.
  /// Errors: those of `take`; corrupt for an event beyond kEventBytesMax.
  Result<void> feed(std::string_view bytes, const Take& take);

 private:
  Result<void> end_line(const Take& take);

  std::string line_;
  std::string data_;
  bool after_return_ = false;  // the last byte was \r, so that a \n belongs to it
  bool has_data_ = false;
};

}  // namespace nibble
