// A test tool: loads TOKENIZER_JSON and answers requests of fixed-length frames on standard input,
// so that a Python oracle can ask a million questions of one process. Not part of the program.
//
// Request: one byte of kind, uint32 length, payload. Answer: uint32 count of words, the words.
//   'r' 'p' 'n'  text -> token ids: special tokens recognised | plain text | recognised, 3 times
//                (the third also prints seconds to standard error)
//   'm'          pieces, each: byte 't' or 'u', uint32 length, bytes -> token ids
//   'd' 's'      token ids -> bytes of the text: keep special tokens | skip; one word per byte.
//                The streaming detokenizer must agree, else the program aborts.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>

#include "text/tokenizer/detokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace nibble {
namespace {

bool read_exactly(void* out, size_t bytes) { return std::fread(out, 1, bytes, stdin) == bytes; }

void answer(std::span<const int32_t> words) {
  const auto count = static_cast<uint32_t>(words.size());
  std::fwrite(&count, sizeof count, 1, stdout);
  if (count > 0) std::fwrite(words.data(), sizeof(int32_t), count, stdout);
  std::fflush(stdout);
}

std::vector<TextPiece> pieces_of(std::string_view payload) {
  std::vector<TextPiece> pieces;
  while (payload.size() >= 5) {
    uint32_t length;
    std::memcpy(&length, payload.data() + 1, sizeof length);
    const Origin origin = payload[0] == 't' ? Origin::from_template : Origin::from_user;
    pieces.push_back({std::string(payload.substr(5, length)), origin});
    payload.remove_prefix(std::min(payload.size(), size_t{5} + length));
  }
  return pieces;
}

std::vector<int32_t> decoded(const Tokenizer& tokenizer, std::string_view payload,
                             SkipSpecial skip) {
  std::vector<int32_t> ids(payload.size() / sizeof(int32_t));
  if (!ids.empty()) std::memcpy(ids.data(), payload.data(), ids.size() * sizeof(int32_t));
  const std::string whole = tokenizer.decode(ids, skip);
  Detokenizer stream(tokenizer, skip);
  std::string streamed;
  for (const int32_t id : ids) streamed += stream.push(id);
  streamed += stream.flush();
  CHECK(streamed == whole, "the stream differs: ", streamed, " from ", whole);
  return {reinterpret_cast<const unsigned char*>(whole.data()),
          reinterpret_cast<const unsigned char*>(whole.data()) + whole.size()};
}

std::vector<int32_t> timed(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids;
  for (int i = 0; i < 3; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    ids = tokenizer.encode(text, SpecialTokens::recognised).value();
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
    std::fprintf(stderr, "%.6f\n", spent.count());
  }
  return ids;
}

int serve(const Tokenizer& tokenizer) {
  char kind;
  while (read_exactly(&kind, 1)) {
    uint32_t length;
    if (!read_exactly(&length, sizeof length)) return 1;
    std::string payload(length, '\0');
    if (!read_exactly(payload.data(), length)) return 1;
    switch (kind) {
      case 'r':
        answer(tokenizer.encode(payload, SpecialTokens::recognised).value());
        break;
      case 'p':
        answer(tokenizer.encode(payload, SpecialTokens::plain_text).value());
        break;
      case 'n':
        answer(timed(tokenizer, payload));
        break;
      case 'm':
        answer(tokenizer.encode(pieces_of(payload)).value());
        break;
      case 'd':
        answer(decoded(tokenizer, payload, SkipSpecial::no));
        break;
      case 's':
        answer(decoded(tokenizer, payload, SkipSpecial::yes));
        break;
      default:
        return 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace nibble

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  std::ifstream file(argv[1], std::ios::binary);
  const std::string json(std::istreambuf_iterator<char>(file), {});
  const auto begin = std::chrono::steady_clock::now();
  const auto tokenizer = nibble::Tokenizer::parse(json, "", argv[1]);
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
  std::fprintf(stderr, "loaded in %.6f\n", spent.count());
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "%s\n", tokenizer.error().message.c_str());
    return 1;
  }
  return nibble::serve(tokenizer.value());
}
