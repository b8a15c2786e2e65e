// The line rules of the HTML standard's "server-sent events": \n, \r\n and \r end a line, an empty
// line ends an event.
#include "bench/event_stream.h"

#include <utility>

namespace nibble {

Result<void> EventStream::feed(std::string_view bytes, const Take& take) {
  while (!bytes.empty()) {
    if (std::exchange(after_return_, false) && bytes.front() == '\n') {
      bytes.remove_prefix(1);
      continue;
    }
    const size_t end = bytes.find_first_of("\r\n");
    const std::string_view part = bytes.substr(0, end);
    if (line_.size() + data_.size() + part.size() > kEventBytesMax)
      return make_error(ErrorCode::corrupt,
                        {.what = "an event of the answer",
                         .expected = concat("at most ", kEventBytesMax, " bytes"),
                         .found = "more"});
    line_ += part;
    if (end == bytes.npos) return {};
    after_return_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    TRY(end_line(take));
  }
  return {};
}

Result<void> EventStream::end_line(const Take& take) {
  const std::string line = std::exchange(line_, {});
  if (line.empty()) {
    const std::string data = std::exchange(data_, {});
    if (std::exchange(has_data_, false)) return take(data);
    return {};
  }
  constexpr std::string_view kField = "data:";
  if (!line.starts_with(kField)) return {};
  std::string_view value = std::string_view(line).substr(kField.size());
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (has_data_) data_ += '\n';
  has_data_ = true;
  data_ += value;
  return {};
}

}  // namespace nibble
