// Fuzz entry: any bytes as a streamed answer of either API, whole and cut in two at any place. Both
// must be read alike, or refused in one line.
#include <cstdint>

#include "base/check.h"
#include "bench/answer_reader.h"

namespace {

using namespace nibble;

bool feed(AnswerReader& reader, std::string_view bytes) {
  const auto fed = reader.feed(bytes, 1.0);
  if (!fed.ok()) CHECK(fed.error().message.find('\n') == std::string::npos, fed.error().message);
  return fed.ok();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const LoadApi api = (data[0] & 1) != 0 ? LoadApi::chat : LoadApi::completions;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  const size_t cut = bytes.size() * data[1] / 255;
  AnswerReader whole(api);
  AnswerReader pieces(api);
  const bool read = feed(whole, bytes);
  const bool cut_read = feed(pieces, bytes.substr(0, cut)) && feed(pieces, bytes.substr(cut));
  CHECK(read == cut_read, "one piece and two are read differently");
  CHECK(whole.token_times() == pieces.token_times() && whole.done() == pieces.done() &&
            whole.text() == pieces.text(),
        "one piece and two say different things");
  CHECK(error_message(bytes).size() <= 200, "a long message");
  return 0;
}
