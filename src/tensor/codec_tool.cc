// For tools/oracle/codec_test.py: holds the codecs against fresh golden files. Not a product.
#include <cstdio>

#include "testing/codec_goldens.h"

int main(int argc, char** argv) {
  size_t differing = 0;
  for (int i = 1; i < argc; ++i) {
    nibble::CodecGoldens goldens(argv[i]);
    const auto differences = goldens.check();
    for (const auto& line : differences) std::printf("%s: %s\n", argv[i], line.c_str());
    std::printf("%s: %zu cases, %lld values\n", argv[i], goldens.cases(),
                static_cast<long long>(goldens.compared()));
    differing += differences.size();
  }
  return argc < 2 || differing != 0 ? 1 : 0;
}
