// For tools/oracle/codec_test.py: holds the codecs against fresh golden files. Not a product.
#include <cstdio>

#include "testing/codec_goldens.h"

int main(int argc, char** argv) {
  size_t differing = 0;
  for (int i = 1; i < argc; ++i) {
    nibble::CodecGoldens goldens(argv[i]);
    const auto differences = goldens.check();
    std::string report;
    for (const auto& line : differences) report += nibble::concat(argv[i], ": ", line, "\n");
    report +=
        nibble::concat(argv[i], ": ", goldens.cases(), " cases, ", goldens.compared(), " values\n");
    std::fputs(report.c_str(), stdout);
    differing += differences.size();
  }
  return argc < 2 || differing != 0 ? 1 : 0;
}
