// Runs a fuzz entry without libFuzzer: every corpus file as it is, then seeded mutations and
// splices of them. DRIVER CORPUS_FOLDER RUNS SECONDS: stops at whichever limit comes first. Not
// coverage-guided: build with -DNIBBLE_FUZZ=ON and clang for that.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

std::vector<std::string> read_corpus(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> paths;
  if (std::filesystem::is_directory(folder)) {
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> corpus;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return corpus;
}

size_t below(std::mt19937_64& random, size_t bound) { return bound == 0 ? 0 : random() % bound; }

std::string mutate(std::string text, const std::vector<std::string>& corpus,
                   std::mt19937_64& random) {
  const size_t edits = 1 + below(random, 6);
  for (size_t i = 0; i < edits; ++i) {
    const size_t at = below(random, text.size() + 1);
    switch (below(random, 6)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(random());
        break;
      case 1:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << below(random, 8)));
        break;
      case 2:
        text.erase(at, 1 + below(random, 16));
        break;
      case 3:
        text.insert(at, text.substr(below(random, text.size() + 1), below(random, 64)));
        break;
      case 4:
        text.insert(at, 1, "\"{}[]:,\\0-9eE<>%\n\x80\xFF"[below(random, 20)]);
        break;
      default: {
        const std::string& other = corpus[below(random, corpus.size())];
        text = text.substr(0, at) + other.substr(below(random, other.size() + 1));
      }
    }
  }
  return text;
}

void run(const std::string& text) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(text.data()), text.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: %s CORPUS_FOLDER RUNS SECONDS\n", argv[0]);
    return 2;
  }
  std::vector<std::string> corpus = read_corpus(argv[1]);
  if (corpus.empty()) {
    std::fprintf(stderr, "%s: no corpus files\n", argv[1]);
    return 1;
  }
  for (const auto& text : corpus) run(text);
  std::mt19937_64 random(20240701);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(std::atoi(argv[3]));
  int done = 0;
  for (; done < std::atoi(argv[2]) && std::chrono::steady_clock::now() < deadline; ++done)
    run(mutate(corpus[below(random, corpus.size())], corpus, random));
  std::printf("%zu corpus files, %d mutations\n", corpus.size(), done);
  return 0;
}
